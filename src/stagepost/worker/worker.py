"""The worker: starts the loops that run jobs, and stops them in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Self, cast

from stagepost.client.app import App
from stagepost.database.migrate import check_schema
from stagepost.errors import ConfigurationError, StagepostError, StoreError, StoreReadOnly, duration_of
from stagepost.events import EventLevel
from stagepost.model.checks import check_name, known_names
from stagepost.model.identity import new_id
from stagepost.model.option_types import check_type
from stagepost.store.counting import count_by_queue
from stagepost.store.events import declare_levels, levels, undeclared_levels
from stagepost.store.health import durability_warnings
from stagepost.store.wait_reasons import what_is_left
from stagepost.transport.rabbitmq.address import driver as rabbitmq_driver
from stagepost.upkeep.scheduler import declare
from stagepost.upkeep.threads import in_thread
from stagepost.worker.broker import check_remote
from stagepost.worker.idle_check import IdleCheck
from stagepost.worker.lease_keeper import LeaseKeeper
from stagepost.worker.loop_table import LOOPS
from stagepost.worker.parts import Parts
from stagepost.worker.shutdown import Shutdown
from stagepost.worker.wiring import connect
from stagepost.worker.worker_thread import WorkerThread

__all__ = ["Worker"]

log = logging.getLogger(__name__)

MOST_CANCELS = 2
"""How often a cancelled step of the shutdown starts again; further cancels end it."""
READ_ONLY_SECONDS = 0.5
"""The pause before a worker that is starting looks again whether the database can be written."""


class Worker:
    """Runs the jobs of an app's queues until it is asked to stop.

    `async with Worker(app):` runs it beside other code, on the same event loop; `with Worker(app):` does so in a thread
    with an event loop of its own. Both fail at once if the worker cannot start. At the end of the block, running jobs
    may finish for up to `shutdown_timeout`; the others return to their queues.
    """

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] = (),
        concurrency: int | None = None,
        shutdown_timeout: timedelta | float | None = None,
    ) -> None:
        if not isinstance(app, App):
            raise ConfigurationError(f"Worker: app is {app!r}: it must be an App. Create one with App(…).")
        _check_options(queues, concurrency, shutdown_timeout)
        settings = app.settings
        if not len(app.registry):
            raise ConfigurationError("the app has no tasks. Import the modules that define them before the worker.")
        check_remote(app)
        if settings.transport is not None:
            rabbitmq_driver()  # raises an error that says what to install
        remote = app.registry.remote_queues
        self.app = app
        self.owner = new_id()
        self.queues = [queue for queue in list(queues) or app.registry.queues if queue not in remote]
        self.concurrency = settings.concurrency if concurrency is None else concurrency
        given = settings.shutdown_timeout_seconds if shutdown_timeout is None else shutdown_timeout
        self.shutdown_timeout = duration_of(given, "shutdown_timeout").total_seconds()
        self.longest_stop_seconds = self.shutdown_timeout + settings.lease_seconds
        self.parts = Parts(
            app,
            LOOPS,
            owner=self.owner,
            queues=self.queues,
            concurrency=self.concurrency,
            lease=timedelta(seconds=settings.lease_seconds),
        )
        connect(self.parts)
        self._requests = self.parts.requests
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._thread: WorkerThread | None = None
        self._failure: StagepostError | None = None
        """Why the worker stopped although nobody asked it to."""

    def stop(self) -> None:
        """Finish the running jobs, then end; the second time: return them to their queues and end at once.

        Any thread may call this.
        """
        self._on_loop(self._requests.request_stop)

    def hurry(self) -> None:
        """Return the running jobs to their queues and end at once. Any thread may call this."""
        self._on_loop(self._requests.note_hurry)

    @property
    def is_running(self) -> bool:
        """Whether it runs jobs: it has started, was not asked to stop, and has not failed."""
        return self._ready.is_set() and not self._requests.is_stopping

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._requests.is_stopping

    @property
    def busy(self) -> int:
        """Number of slots in which a handler runs, including handlers that did not stop when asked to."""
        return self.parts.executor.running + self.parts.executor.threads.stuck

    @property
    def seconds_since_look(self) -> float:
        """How long ago it last looked for jobs, whether or not the database answered."""
        return self.app.clock.monotonic() - self.parts.claimer.began_at

    @property
    def must_restart(self) -> bool:
        """Whether this process can run no more jobs, so that its parent should start another."""
        return self._requests.must_restart

    @property
    def seconds_left(self) -> float:
        """How long the process may still take to end, once the worker was asked to stop."""
        return self._requests.seconds_left(self.shutdown_timeout)

    async def run(self, *, install_signals: bool = False, until_idle: bool = False) -> None:
        """Work until stopped, or, with `until_idle`, until the queues have nothing that is due.

        To cancel this is to stop it: CancelledError is raised once all jobs are finished or returned to their queues.
        """
        if install_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.stop)
        await self._end_of(self._begin(until_idle=until_idle))

    async def __aenter__(self) -> Self:
        work = self._begin()
        is_ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({work, is_ready}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.stop()
            with contextlib.suppress(Exception):
                await self._end_of(work)
            raise
        finally:
            is_ready.cancel()
        if work.done():
            work.result()
            raise StagepostError("the worker was asked to stop before it had started.")
        work.add_done_callback(_log_failure)
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._requests.note_stop()
        try:
            await self._end_of(cast("asyncio.Task[None]", self._work))
            if self.must_restart:
                raise StagepostError(
                    "the worker stopped: handlers that did not stop held all slots. Restart the process."
                )
        except Exception:
            if error is None:  # otherwise the body's own error is the one to raise
                raise

    def __enter__(self) -> Self:
        thread = WorkerThread(self)
        thread.enter()
        self._thread = thread
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        cast("WorkerThread", self._thread).leave(raises=error is None)

    def _begin(self, *, until_idle: bool = False) -> asyncio.Task[None]:
        """Start in a task of its own, which a cancel reaches only if the loop is closing and cancels every task."""
        if self._work is not None:
            raise ConfigurationError("a worker starts only once. Create another with Worker(app, …).")
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.create_task(self._run(until_idle=until_idle), name="stagepost-worker")
        self._requests.follow(self._work)
        return self._work

    async def _end_of(self, work: asyncio.Task[None]) -> None:
        """Wait until the worker has ended; a cancel meanwhile is a request to stop, and a second one to hurry."""
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError as error:
                cancelled = cancelled or error
                self.stop()
        work.result()
        if cancelled is not None:
            raise cancelled

    async def _run(self, *, until_idle: bool) -> None:
        is_prepared = False
        try:
            is_prepared = await self._is_prepared()
        finally:
            if not is_prepared:
                self.parts.store.abort()
        if is_prepared:
            await self._work_until_stopped(asyncio.get_running_loop(), until_idle=until_idle)

    async def _work_until_stopped(self, loop: asyncio.AbstractEventLoop, *, until_idle: bool) -> None:
        keeper = self._start_lease_keeper(loop)
        watch = asyncio.create_task(keeper.watch(), name="stagepost-watch")
        log.info(
            "worker %s (pid %d on %s) runs queues %s with %d slots",
            self.owner, os.getpid(), socket.gethostname(), ", ".join(self.queues), self.concurrency,
        )  # fmt: skip
        services = self.parts.loops.values()
        tasks = {service: asyncio.create_task(service.run(), name=type(service).__name__) for service in services}
        self.parts.wakeups.start(partial(_call_in, loop, self.parts.signals.jobs_ready.send))
        for task in tasks.values():
            task.add_done_callback(self._check_loop)
        shutdown = Shutdown(self.parts, tasks, shutdown_timeout=self.shutdown_timeout)
        self._ready.set()
        try:
            await self._wait_for_stop(until_idle=until_idle)
        except asyncio.CancelledError:
            self.hurry()
            raise
        finally:
            self._requests.note_stop()
            await self._finish(shutdown.run)
            await self._finish(partial(self.parts.worker_hooks.stop, self._seconds_for_hooks))
            await self._finish(partial(shutdown.close, keeper, watch))
        if self._failure is not None:
            raise self._failure

    def _check_loop(self, task: asyncio.Task[None]) -> None:
        """Stop the worker if a loop ended although it was not asked to: what it does would silently not happen."""
        if self.is_stopping or task.cancelled():
            return
        self._failure = StagepostError(f"the worker's {task.get_name()} ended; start another worker.")
        self._failure.__cause__ = task.exception()
        self._requests.note_stop()

    def _start_lease_keeper(self, loop: asyncio.AbstractEventLoop) -> LeaseKeeper:
        keeper = LeaseKeeper(
            self.app.store if self.app.store.database.is_memory else self.app.open_store(pool_size=1),
            self.parts.attempts,
            owner=self.owner,
            lease=self.parts.lease,
            clock=self.app.clock,
            loop=loop,
            failure_log=self.parts.failure_log,
        )
        keeper.start()
        self.app.store.notifier.subscribe_to_stops(keeper.wake)
        return keeper

    async def _is_prepared(self) -> bool:
        """Check the tables, declare schedules and levels of events; False if asked to stop meanwhile."""

        async def prepare() -> None:
            await in_thread(self._check_store)
            await self._declare()
            await self.parts.worker_hooks.start()

        return await self._unless_stopped(prepare())

    async def _declare(self) -> None:
        """Declare schedules and levels, as soon as the database can be written: during a failover it is read-only."""
        for tries in count():
            try:
                await declare(self.parts.store, self.app.declared_schedules.values())
                return await self._declare_levels()
            except StoreReadOnly as error:
                if not tries:
                    log.warning("this worker starts when the database can be written again: %s", error)
                await asyncio.sleep(READ_ONLY_SECONDS)
        raise AssertionError("not reached")

    async def _declare_levels(self) -> None:
        """Store the levels of events that differ from the stored ones; usually none, so that nothing is written."""
        given = {task.name: task.options.events for task in self.app.registry}
        tasks = {name: None if level is None else EventLevel(level) for name, level in given.items()}
        default = EventLevel(self.app.settings.events)
        if undeclared_levels(await self.parts.store.run(levels()), default, tasks):
            await self.parts.store.run(declare_levels(default, tasks))

    def _check_store(self) -> None:
        check_schema(self.app.store)
        for warning in self.app.store.run(durability_warnings()):
            log.warning("%s", warning)
        known = set(self.app.registry.queues)
        for name in set(self.queues) - known:
            if name not in self.app.store.run(count_by_queue()):
                log.warning(
                    "queue %s has no jobs, and no task of this app uses it. %s", name, known_names(name, known)
                )  # fmt: skip

    async def _wait_for_stop(self, *, until_idle: bool) -> None:
        if until_idle:
            await self._unless_stopped(self._become_idle())
        else:
            await self._requests.stop.wait()

    async def _become_idle(self) -> None:
        await IdleCheck(self.parts).wait()
        with contextlib.suppress(StoreError):
            if left := await self.parts.store.run(what_is_left(self.queues), patience_seconds=0):
                log.info("idle: nothing is due. These jobs are left: %s", "; ".join(left))

    async def _unless_stopped(self, step: Coroutine[Any, Any, None]) -> bool:
        """Run a step until it is done or the worker is asked to stop; returns whether it is done."""
        doing, stopped = asyncio.create_task(step), asyncio.create_task(self._requests.stop.wait())
        try:
            await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
            return doing.done()
        finally:
            doing.cancel()
            stopped.cancel()

    def _on_loop(self, function: Callable[[], None]) -> None:
        """Call a function now if this thread runs the worker's event loop, and on that loop otherwise."""
        if self._loop is None or self._loop is _loop_of_this_thread():
            function()
        else:
            _call_in(self._loop, function)

    def _seconds_for_hooks(self) -> float:
        """Return how long a hook may take: what the jobs left of the time for the shutdown, and always a little."""
        return max(self._requests.patience.parting, self.seconds_left - self._requests.patience.parting)

    async def _finish(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Complete a step of the shutdown even though a closing event loop cancels it."""
        for _ in range(MOST_CANCELS):
            try:
                return await step()
            except asyncio.CancelledError:
                self.hurry()
        return await step()


def _check_options(queues: object, concurrency: object, shutdown_timeout: object) -> None:
    if isinstance(queues, str):
        raise ConfigurationError(f"worker option queues is {queues!r}: it must be a list of names, [{queues!r}].")
    check_type("worker option queues", queues, list[str] | tuple[str, ...])
    for queue in cast("Sequence[str]", queues):
        check_name("queue", queue)
    check_type("worker option concurrency", concurrency, int | None)
    if isinstance(concurrency, int) and concurrency < 1:
        raise ConfigurationError(f"worker option concurrency is {concurrency}: it must be 1 or more.")
    check_type("worker option shutdown_timeout", shutdown_timeout, timedelta | float | None)


def _log_failure(work: asyncio.Task[None]) -> None:
    if not work.cancelled() and (error := work.exception()) is not None:
        log.error("the worker failed, and runs no more jobs in this process", exc_info=error)


def _loop_of_this_thread() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended: the hint came too late
        loop.call_soon_threadsafe(function)
