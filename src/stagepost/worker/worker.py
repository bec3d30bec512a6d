"""The worker: puts claimer, executor, finisher, lease keeper and upkeep together, and takes them apart in order."""

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
from typing import Any

from stagepost.client.app import App
from stagepost.database.async_store import AsyncStore
from stagepost.database.migrate import check_schema
from stagepost.errors import ConfigurationError, StoreError, duration_of
from stagepost.loops.service import Service
from stagepost.model.identity import new_id
from stagepost.model.outcome import Released
from stagepost.store.health import durability_warnings
from stagepost.transport import wakeups_for
from stagepost.upkeep.alarm import AlertingRunner
from stagepost.upkeep.batch_rescuer import BatchRescuer
from stagepost.upkeep.declarer import Declarer
from stagepost.upkeep.leader import TERM, Leader
from stagepost.upkeep.move_compactor import MoveCompactor
from stagepost.upkeep.promoter import Promoter
from stagepost.upkeep.pruner import Pruner
from stagepost.upkeep.reconciler import Uncarried
from stagepost.upkeep.recounter import Recounter
from stagepost.upkeep.rescuer import Rescuer
from stagepost.upkeep.scheduler import Scheduler, declare
from stagepost.upkeep.threads import in_thread
from stagepost.worker.broker import Broker, check_remote
from stagepost.worker.claimer import Claimer
from stagepost.worker.concluder import Concluder
from stagepost.worker.crash_isolation import CrashIsolation
from stagepost.worker.executor import Executor
from stagepost.worker.finisher import Finisher
from stagepost.worker.lease_keeper import LeaseKeeper
from stagepost.worker.leased_ahead import LeasedAhead
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from stagepost.worker.limit_opener import LimitOpener
from stagepost.worker.pace import HELD_BYTES, Pace, room, within_bytes
from stagepost.worker.reporter import Reporter
from stagepost.worker.stopping import Requests, Shutdown

__all__ = ["Worker"]

log = logging.getLogger(__name__)

MOST_CANCELS = 2
"""How often a cancelled step of the shutdown starts again; further cancels end it."""

IDLE_PASSES = 2
IDLE_SECONDS = 0.01

RESCUE_SECONDS = 5.0
"""How often ended leases are looked for, unless leases are so short that this would be late."""


class Worker:
    """Runs the jobs of an app's queues until it is told to stop."""

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] = (),
        concurrency: int | None = None,
        shutdown_timeout: timedelta | float | None = None,
    ) -> None:
        settings = app.settings
        self.app = app
        self.owner = new_id()
        remote = app.registry.remote_queues
        self.queues = [queue for queue in list(queues) or app.registry.queues if queue not in remote]
        self.concurrency = settings.concurrency if concurrency is None else concurrency
        given = settings.shutdown_timeout_seconds if shutdown_timeout is None else shutdown_timeout
        self.shutdown_timeout = duration_of(given, "shutdown_timeout").total_seconds()
        self.lease = timedelta(seconds=settings.lease_seconds)
        if not len(app.registry):
            raise ConfigurationError("the app has no tasks. Import the modules that define them before the worker.")
        check_remote(app)
        self.must_restart = False
        """Set when this process can do no more work; whoever started it should start it again."""
        self.requests = Requests()
        self._build()

    def _build(self) -> None:
        app, settings, clock = self.app, self.app.settings, self.app.clock
        self.attempts = LeasedAttempts()
        self.pace = Pace(clock)
        self.store = AsyncStore(app.store)
        self.finisher = Finisher(self.store, self.attempts, on_settled=self._note_settled, notifies=settings.wakeups)
        self.executor = Executor(
            app.registry, self.finisher, concurrency=self.concurrency, clock=clock, folder=app.folder
        )
        self.leased_ahead = LeasedAhead(self.store, self.executor, self.pace, owner=self.owner, queues=self.queues)
        self.executor.on_waiting = self.leased_ahead.wake
        self.crash_isolation = CrashIsolation(
            self.store, self.attempts, self.finisher, start=self.executor.start, clock=clock
        )
        self.claimer = Claimer(
            self.store,
            self.attempts,
            queues=[queue for queue in self.queues if not self._is_carried(queue)],
            task_names=[task.name for task in app.registry if not task.options.remote],
            owner=self.owner,
            lease=self.lease,
            room=self._room,
            start=self._take_on,
            clock=clock,
            poll_shortest_seconds=settings.poll_shortest_seconds,
            poll_longest_seconds=settings.poll_longest_seconds,
            rules=app.registry.limit_rules,
        )
        self.executor.on_idle = self.claimer.wake_if_full
        self.leader = Leader(self.store, owner=self.owner, clock=clock, term=min(TERM, self.lease))
        alarm = AlertingRunner(self.store, job_for=app.alert_job, on_raised=self._wake_claimer)
        self.broker: Broker | None = None
        if settings.transport is not None:
            self.broker = Broker(
                app,
                settings.transport,
                self.store,
                self.attempts,
                queues=self.queues,
                owner=self.owner,
                lease=self.lease,
                term=self.leader.term,
                start=self._take_on,
                alarm=alarm,
            )
        rules = app.registry.limit_rules
        self.promoter = Promoter(self.store, rules=rules, on_promoted=self._wake_claimer)
        self.limit_opener = LimitOpener(self.store, rules=rules, on_opened=self._wake_claimer)
        self.finisher.on_unlimited = self.limit_opener.note
        self.concluder = Concluder(self.store, clock=clock, on_done=self._wake_claimer)
        self.finisher.on_ended = self.concluder.note
        if self.broker is not None:
            self.broker.leader.on_elected = self._wake_upkeep
            self.broker.reconciler.on_ended = self.concluder.note
        if self.broker is not None and self.broker.collector is not None:
            self.broker.collector.on_ended = self.concluder.note
        if self.broker is not None and self.broker.answers is not None:
            self.broker.answers.on_ended = self.concluder.note
            self.broker.answers.on_unlimited = self.limit_opener.note
        carried = self.broker.queues if self.broker else ()
        self.wakeups = wakeups_for(app.store, settings, queues={*self.queues, *carried})
        self.reporter = Reporter(self.store, self)
        self.upkeep: list[Service] = [
            self.leader,
            self.promoter,
            self.limit_opener,
            Rescuer(
                self.store,
                interval=min(RESCUE_SECONDS, settings.lease_seconds / 3),
                on_rescued=self._wake_claimer,
                on_ended=self.concluder.note,
                on_unlimited=self.limit_opener.note,
                alarm=alarm,
            ),
            Scheduler(self.store, self.leader, on_fired=self._wake_claimer),
            Declarer(self.store, self.leader, app.schedules),
            self.concluder,
            BatchRescuer(self.store, self.leader, on_done=self._wake_claimer),
            Pruner(self.store, self.leader, history_days=settings.history_days),
            MoveCompactor(self.store, self.leader, clock=clock),
            Recounter(
                self.store,
                self.leader,
                open_store=None if app.store.database.is_memory else partial(app.open_store, pool_size=1),
            ),
            self.reporter,
            *(self.broker.upkeep if self.broker else [Uncarried(self.store, self.leader, on_found=self._wake_claimer)]),
        ]
        self.leader.on_elected = self._wake_upkeep

    def stop(self) -> None:
        """Finish what is running, then end; the second time: give it back and end at once."""
        if self.is_stopping:
            self.hurry()
        self.requests.note_stop()

    def hurry(self) -> None:
        """Give back what is running and end at once."""
        self.requests.note_hurry()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self.requests.stop.is_set()

    @property
    def seconds_left(self) -> float:
        """How long the process may still take to end, once the worker was told to stop."""
        return self.requests.seconds_left(self.shutdown_timeout)

    async def run(self, *, install_signals: bool = False, until_idle: bool = False) -> None:
        """Work until stopped, or, with `until_idle`, until the queues have nothing that is due.

        To cancel this is to stop it: CancelledError is raised once all is finished or given back.
        """
        if install_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.stop)
        # In a task of its own, which a cancel does not reach unless the loop is closing and cancels every task.
        work = asyncio.create_task(self._run(until_idle=until_idle), name="stagepost-worker")
        self.executor.is_closing = lambda: work.cancelling() > 0
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
            self.store.abort()
            return
        keeper = LeaseKeeper(
            self.app.store if self.app.store.database.is_memory else self.app.open_store(pool_size=1),
            self.attempts,
            owner=self.owner,
            lease=self.lease,
            clock=self.app.clock,
            loop=asyncio.get_running_loop(),
        )
        keeper.start()
        self.app.store.notifier.subscribe_to_stops(keeper.wake)
        watch = asyncio.create_task(keeper.watch(), name="stagepost-watch")
        log.info(
            "worker %s (pid %d on %s) runs queues %s with %d slots",
            self.owner, os.getpid(), socket.gethostname(), ", ".join(self.queues), self.concurrency,
        )  # fmt: skip
        taking = self.broker.taking if self.broker else []
        services: list[Service] = [
            *self.upkeep,
            self.finisher,
            self.crash_isolation,
            self.leased_ahead,
            self.claimer,
            *taking,
        ]
        tasks = {service: asyncio.create_task(service.run(), name=type(service).__name__) for service in services}
        self.wakeups.start(partial(_call_in, asyncio.get_running_loop(), self._wake_claimer))
        shutdown = Shutdown(self, tasks)
        try:
            await self._until_told(until_idle=until_idle)
        except asyncio.CancelledError:
            self.hurry()
            raise
        finally:
            self.requests.note_stop()
            await self._insist(shutdown.run)
            await self._insist(partial(shutdown.close, keeper, watch))

    async def _is_prepared(self) -> bool:
        """Check the tables and declare schedules; False if the worker was told to stop meanwhile."""

        async def prepare() -> None:
            await in_thread(self._check_store)
            await declare(self.store, self.app.schedules.values())

        return await self._unless_stopped(prepare())

    async def _until_told(self, *, until_idle: bool) -> None:
        if until_idle:
            await self._unless_stopped(self._until_idle())
        else:
            await self.requests.stop.wait()

    async def _unless_stopped(self, step: Coroutine[Any, Any, None]) -> bool:
        """Do something that a request to stop interrupts; says whether it was done."""
        doing, told = asyncio.create_task(step), asyncio.create_task(self.requests.stop.wait())
        try:
            await asyncio.wait({doing, told}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
            return doing.done()
        finally:
            doing.cancel()
            told.cancel()

    async def _insist(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do a step of the shutdown to its end, though the loop is closing and cancels it."""
        for _ in range(MOST_CANCELS):
            try:
                return await step()
            except asyncio.CancelledError:
                self.hurry()
        return await step()

    async def _until_idle(self) -> None:
        """Return once nothing was due, after that nothing could be claimed, and all the while nothing ran."""
        while not self.is_stopping:
            ended = self._ended
            # Twice with a broker: an answer that is stored after what is due was looked for may make a job due, and is
            # counted a moment later.
            is_at_rest = await self._is_at_rest() and (self.broker is None or await self._is_at_rest())
            if is_at_rest and self._ended == ended:
                return
            await asyncio.sleep(IDLE_SECONDS)

    async def _is_at_rest(self) -> bool:
        if (
            len(self.attempts)
            or self.concluder.pending
            or self.limit_opener.pending
            or not await self._promotes_nothing()
        ):
            return False
        await self._look_twice()
        # Again: a claim may have sent a job back to the line of its rate since.
        if self.app.registry.limit_rules.rates and not await self._promotes_nothing():
            return False
        has_sent_all = self.broker is None or await self.broker.is_idle()
        return not len(self.attempts) and has_sent_all

    @property
    def _ended(self) -> int:
        return self.finisher.ended + (self.broker.answered if self.broker else 0)

    async def _promotes_nothing(self) -> bool:
        try:
            return not await self.promoter.run_once(thorough=True) and not self.promoter.awaits_tokens
        except StoreError:
            return False  # who knows

    async def _look_twice(self) -> None:
        """Let the claimer find nothing twice: its first look may have begun before it was asked."""
        self.claimer.empty_passes = 0
        while self.claimer.empty_passes < IDLE_PASSES and not self.is_stopping:
            self.claimer.wake()
            await asyncio.sleep(IDLE_SECONDS)

    def _check_store(self) -> None:
        check_schema(self.app.store)
        for warning in self.app.store.run(durability_warnings()):
            log.warning("%s", warning)

    def _room(self) -> int:
        prefetch = self.app.settings.prefetch
        if self.pace.is_stalled:
            prefetch = 0
        held = len(self.attempts)
        over = self.finisher.pending if self.finisher.pending_bytes <= HELD_BYTES else 0
        jobs = room(
            slots=self.concurrency,
            ahead=self.pace.ahead() if prefetch is None else prefetch,
            held=held,
            over=over,
            ready=self.executor.ready,
        )
        return within_bytes(
            jobs,
            free=self.concurrency - (held - over),
            held_bytes=self.attempts.payload_bytes,
            bytes_each=self.attempts.bytes_each,
        )

    def _take_on(self, attempts: list[LeasedAttempt]) -> None:
        """Run claimed jobs; those of a claim that was answered after the worker was told to stop are given back."""
        if not self.is_stopping:
            self.crash_isolation.start(attempts)
            return
        for attempt in attempts:
            self.finisher.put(attempt, Released())

    def _note_settled(self, ended: int) -> None:
        if ended:
            self.pace.note(ended)
        self.claimer.wake()

    def _is_carried(self, queue: str) -> bool:
        return self.app.settings.transport is not None and self.app.settings.rabbitmq.carries(queue)

    def _wake_claimer(self) -> None:
        self.claimer.wake()
        if self.broker is not None:
            self.broker.relay.wake()

    @property
    def _leaders(self) -> list[Leader]:
        return [self.leader, *([self.broker.leader] if self.broker else ())]

    def _wake_upkeep(self) -> None:
        for service in self.upkeep:
            if service not in self._leaders:
                service.wake()


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended: a hint that came too late
        loop.call_soon_threadsafe(function)
