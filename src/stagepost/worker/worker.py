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
from typing import Any, cast

from stagepost.client.app import App
from stagepost.database.migrate import check_schema
from stagepost.database.statement import Operation
from stagepost.errors import ConfigurationError, duration_of
from stagepost.events import EventLevel
from stagepost.model.checks import check_name
from stagepost.model.identity import new_id
from stagepost.model.option_types import check_type
from stagepost.store.events import declare_levels
from stagepost.store.health import durability_warnings
from stagepost.upkeep.scheduler import declare
from stagepost.upkeep.threads import in_thread
from stagepost.worker.broker import check_remote
from stagepost.worker.idle_check import IdleCheck
from stagepost.worker.lease_keeper import LeaseKeeper
from stagepost.worker.loop_table import LOOPS
from stagepost.worker.parts import Parts
from stagepost.worker.shutdown import Shutdown
from stagepost.worker.wiring import connect

__all__ = ["Worker"]

log = logging.getLogger(__name__)

MOST_CANCELS = 2
"""How often a cancelled step of the shutdown starts again; further cancels end it."""


class Worker:
    """Runs the jobs of an app's queues until it is asked to stop."""

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] = (),
        concurrency: int | None = None,
        shutdown_timeout: timedelta | float | None = None,
    ) -> None:
        _check_options(queues, concurrency, shutdown_timeout)
        settings = app.settings
        if not len(app.registry):
            raise ConfigurationError("the app has no tasks. Import the modules that define them before the worker.")
        check_remote(app)
        remote = app.registry.remote_queues
        self.app = app
        self.owner = new_id()
        self.queues = [queue for queue in list(queues) or app.registry.queues if queue not in remote]
        self.concurrency = settings.concurrency if concurrency is None else concurrency
        given = settings.shutdown_timeout_seconds if shutdown_timeout is None else shutdown_timeout
        self.shutdown_timeout = duration_of(given, "shutdown_timeout").total_seconds()
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

    def stop(self) -> None:
        """Finish the running jobs, then end; the second time: return them to their queues and end at once."""
        self._requests.request_stop()

    def hurry(self) -> None:
        """Return the running jobs to their queues and end at once."""
        self._requests.note_hurry()

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._requests.is_stopping

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
        # In a task of its own, which a cancel does not reach unless the loop is closing and cancels every task.
        work = asyncio.create_task(self._run(until_idle=until_idle), name="stagepost-worker")
        self._requests.follow(work)
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
        if not await self._is_prepared():
            self.parts.store.abort()
            return
        loop = asyncio.get_running_loop()
        keeper = self._start_lease_keeper(loop)
        watch = asyncio.create_task(keeper.watch(), name="stagepost-watch")
        log.info(
            "worker %s (pid %d on %s) runs queues %s with %d slots",
            self.owner, os.getpid(), socket.gethostname(), ", ".join(self.queues), self.concurrency,
        )  # fmt: skip
        services = self.parts.loops.values()
        tasks = {service: asyncio.create_task(service.run(), name=type(service).__name__) for service in services}
        self.parts.wakeups.start(partial(_call_in, loop, self.parts.signals.jobs_ready.send))
        shutdown = Shutdown(self.parts, tasks, shutdown_timeout=self.shutdown_timeout)
        try:
            await self._wait_for_stop(until_idle=until_idle)
        except asyncio.CancelledError:
            self.hurry()
            raise
        finally:
            self._requests.note_stop()
            await self._finish(shutdown.run)
            await self._finish(partial(shutdown.close, keeper, watch))

    def _start_lease_keeper(self, loop: asyncio.AbstractEventLoop) -> LeaseKeeper:
        keeper = LeaseKeeper(
            self.app.store if self.app.store.database.is_memory else self.app.open_store(pool_size=1),
            self.parts.attempts,
            owner=self.owner,
            lease=self.parts.lease,
            clock=self.app.clock,
            loop=loop,
        )
        keeper.start()
        self.app.store.notifier.subscribe_to_stops(keeper.wake)
        return keeper

    async def _is_prepared(self) -> bool:
        """Check the tables, declare schedules and levels of events; False if asked to stop meanwhile."""

        async def prepare() -> None:
            await in_thread(self._check_store)
            await declare(self.parts.store, self.app.schedules.values())
            await self.parts.store.run(self._levels())

        return await self._unless_stopped(prepare())

    def _levels(self) -> Operation[None]:
        given = {task.name: task.options.events for task in self.app.registry}
        tasks = {name: None if level is None else EventLevel(level) for name, level in given.items()}
        return declare_levels(self.app.settings.events, tasks)

    def _check_store(self) -> None:
        check_schema(self.app.store)
        for warning in self.app.store.run(durability_warnings()):
            log.warning("%s", warning)

    async def _wait_for_stop(self, *, until_idle: bool) -> None:
        if until_idle:
            await self._unless_stopped(IdleCheck(self.parts).wait())
        else:
            await self._requests.stop.wait()

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


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended: the hint came too late
        loop.call_soon_threadsafe(function)
