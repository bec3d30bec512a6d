"""The worker: puts claimer, executor, finisher, lease keeper and upkeep together, and takes them apart in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from stagepost.client.app import App
from stagepost.errors import ConfigurationError, StoreError
from stagepost.model.identity import new_id
from stagepost.store.async_store import AsyncStore
from stagepost.store.health import durability_warnings
from stagepost.store.migrate import check_schema
from stagepost.store.workers import forget_worker
from stagepost.transport import wakeups_for
from stagepost.upkeep.alarm import Alarm
from stagepost.upkeep.batch_keeper import BatchKeeper
from stagepost.upkeep.batch_recounter import BatchRecounter
from stagepost.upkeep.counter import Counter
from stagepost.upkeep.declarer import Declarer
from stagepost.upkeep.leader import TERM, Leader
from stagepost.upkeep.promoter import Promoter
from stagepost.upkeep.pruner import Pruner
from stagepost.upkeep.reconciler import Uncarried
from stagepost.upkeep.recounter import Recounter
from stagepost.upkeep.rescuer import Rescuer
from stagepost.upkeep.scheduler import Scheduler, declare
from stagepost.upkeep.service import Service
from stagepost.worker.broker import Broker, check_remote
from stagepost.worker.claimer import Claimer
from stagepost.worker.concluder import Concluder
from stagepost.worker.executor import Executor
from stagepost.worker.finisher import Finisher
from stagepost.worker.flights import Flights
from stagepost.worker.lease_keeper import LeaseKeeper
from stagepost.worker.leased_ahead import LeasedAhead
from stagepost.worker.pace import Pace, room
from stagepost.worker.reporter import Reporter
from stagepost.worker.suspects import Suspects

__all__ = ["Worker"]

log = logging.getLogger(__name__)

STUBBORN_SECONDS = 2.0
"""How long handlers that were told to stop may take to notice."""

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
        shutdown_timeout: float | None = None,
    ) -> None:
        settings = app.settings
        self.app = app
        self.owner = new_id()
        remote = app.registry.remote_queues
        self.queues = [queue for queue in list(queues) or app.registry.queues if queue not in remote]
        self.concurrency = settings.concurrency if concurrency is None else concurrency
        self.shutdown_timeout = settings.shutdown_timeout if shutdown_timeout is None else shutdown_timeout
        self.lease = timedelta(seconds=settings.lease)
        if not len(app.registry):
            raise ConfigurationError("the app has no tasks. Import the modules that define them before the worker.")
        check_remote(app)
        self.must_restart = False
        """Set when this process can do no more work; whoever started it should start it again."""
        self._stop_event = asyncio.Event()
        self._hurry_event = asyncio.Event()
        self._build()

    def _build(self) -> None:
        app, settings, clock = self.app, self.app.settings, self.app.clock
        self.flights = Flights()
        self.pace = Pace(clock)
        self.store = AsyncStore(app.store)
        self.finisher = Finisher(self.store, self.flights, on_settled=self._note_settled, notifies=settings.wakeups)
        self.executor = Executor(
            app.registry, self.finisher, concurrency=self.concurrency, clock=clock, new_limiter=app.rate_limiter
        )
        self.leased_ahead = LeasedAhead(self.store, self.executor, self.pace, owner=self.owner, queues=self.queues)
        self.executor.on_waiting = self.leased_ahead.wake
        self.suspects = Suspects(self.store, self.flights, self.finisher, start=self.executor.start, clock=clock)
        self.claimer = Claimer(
            self.store,
            self.flights,
            queues=[queue for queue in self.queues if not self._is_carried(queue)],
            task_names=[task.name for task in app.registry if not task.options.remote],
            owner=self.owner,
            lease=self.lease,
            room=self._room,
            start=self.suspects.start,
            clock=clock,
            poll_shortest=settings.poll_shortest,
            poll_longest=settings.poll_longest,
        )
        self.executor.on_idle = self.claimer.wake_if_full
        self.leader = Leader(self.store, owner=self.owner, clock=clock, term=min(TERM, self.lease))
        alarm = Alarm(self.store, job_for=app.alert_job, on_raised=self._wake_claimer)
        self.broker: Broker | None = None
        if settings.transport is not None:
            self.broker = Broker(
                app,
                settings.transport,
                self.store,
                self.flights,
                queues=self.queues,
                owner=self.owner,
                lease=self.lease,
                term=self.leader.term,
                start=self.suspects.start,
                alarm=alarm,
            )
        self.promoter = Promoter(self.store, on_promoted=self._wake_claimer)
        self.finisher.on_unlimited = self.promoter.wake
        self.concluder = Concluder(self.store, clock=clock, on_done=self._wake_claimer)
        self.finisher.on_ended = self.concluder.note
        if self.broker is not None:
            self.broker.leader.on_elected = self._wake_upkeep
            self.broker.reconciler.on_ended = self.concluder.note
        if self.broker is not None and self.broker.collector is not None:
            self.broker.collector.on_ended = self.concluder.note
        if self.broker is not None and self.broker.answers is not None:
            self.broker.answers.on_ended = self.concluder.note
            self.broker.answers.on_unlimited = self.promoter.wake
        carried = self.broker.queues if self.broker else ()
        self.wakeups = wakeups_for(app.store, settings, queues={*self.queues, *carried})
        self.reporter = Reporter(self.store, self)
        self._upkeep: list[Service] = [
            self.leader,
            self.promoter,
            Rescuer(
                self.store,
                interval=min(RESCUE_SECONDS, settings.lease / 3),
                on_rescued=self._wake_claimer,
                on_ended=self.concluder.note,
                alarm=alarm,
            ),
            Scheduler(self.store, self.leader, on_fired=self._wake_claimer),
            Declarer(self.store, self.leader, app.schedules),
            self.concluder,
            BatchKeeper(self.store, self.leader, on_done=self._wake_claimer),
            Pruner(self.store, self.leader, history_days=settings.history_days),
            Counter(self.store, self.leader, clock=clock),
            Recounter(
                self.store,
                self.leader,
                open_store=None if app.store.database.is_memory else partial(app.open_store, pool_size=1),
            ),
            BatchRecounter(self.store, self.leader),
            self.reporter,
            *(self.broker.upkeep if self.broker else [Uncarried(self.store, self.leader, on_found=self._wake_claimer)]),
        ]
        self.leader.on_elected = self._wake_upkeep

    def stop(self) -> None:
        """Finish what is running, then end; the second time: give it back and end at once."""
        if self.is_stopping:
            self.hurry()
        self._stop_event.set()

    def hurry(self) -> None:
        """Give back what is running and end at once."""
        self._stop_event.set()
        self._hurry_event.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stop_event.is_set()

    async def run(self, *, install_signals: bool = False, until_idle: bool = False) -> None:
        """Work until stopped, or, with `until_idle`, until the queues have nothing that is due."""
        loop = asyncio.get_running_loop()
        if install_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
        await loop.run_in_executor(None, self._check_store)
        await declare(self.store, self.app.schedules.values())
        keeper_store = self.app.store if self.app.store.database.is_memory else self.app.open_store(pool_size=1)
        keeper = LeaseKeeper(
            keeper_store,
            self.flights,
            owner=self.owner,
            lease=self.lease,
            clock=self.app.clock,
            loop=loop,
        )
        keeper.start()
        watch = asyncio.create_task(keeper.watch(), name="stagepost-watch")
        log.info(
            "worker %s (pid %d on %s) runs queues %s with %d slots",
            self.owner, os.getpid(), socket.gethostname(), ", ".join(self.queues), self.concurrency,
        )  # fmt: skip
        try:
            await self._work(until_idle=until_idle)
        finally:
            watch.cancel()
            await loop.run_in_executor(None, keeper.stop)
            if keeper_store is not self.app.store:
                keeper_store.close()
            self.executor.close()
            self.store.close()

    async def _work(self, *, until_idle: bool) -> None:
        taking = self.broker.taking if self.broker else []
        services: list[Service] = [
            *self._upkeep,
            self.finisher,
            self.suspects,
            self.leased_ahead,
            self.claimer,
            *taking,
        ]
        tasks = {service: asyncio.create_task(service.run(), name=type(service).__name__) for service in services}
        loop = asyncio.get_running_loop()
        self.wakeups.start(partial(_call_in, loop, self._wake_claimer))
        try:
            if until_idle:
                await self._until_idle()
            else:
                await self._stop_event.wait()
            await self._shut_down(tasks)
        finally:
            await loop.run_in_executor(None, self.wakeups.stop)
            for service in taking:
                await service.close()
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _shut_down(self, tasks: dict[Service, asyncio.Task[None]]) -> None:
        """Stop claiming, drain with leases kept, give back what is left, write it all, stop the rest."""
        log.info("stopping: %d jobs are running", self.executor.running)
        self.claimer.stop()
        self._give_back_waiting()  # at once: while a claim under way is waited for, those in line would start
        claiming = {tasks[self.claimer]}
        for taking in self.broker.taking if self.broker else ():
            taking.stop()
            claiming.add(tasks[taking])
        # A claim under way may still bring jobs; they are given back with the rest.
        await asyncio.wait(claiming, timeout=STUBBORN_SECONDS)
        self._give_back_waiting()
        if not await self._drain():
            self.executor.release_running("the worker is shutting down")
            await self.executor.drain(STUBBORN_SECONDS)
            self.executor.abandon_running()
        self._give_back_waiting()
        await self._write_all()
        with contextlib.suppress(StoreError):  # upkeep of others does it otherwise
            await self.concluder.flush()
        for service in self._upkeep:
            service.stop()
        with contextlib.suppress(Exception):
            for leader in self._leaders:
                await leader.resign()
            await self.store.run(forget_worker(self.owner), patience_seconds=1)
        log.info("stopped: %d jobs settled, %d lost to other workers", self.finisher.settled, self.finisher.lost)

    def _give_back_waiting(self) -> None:
        self.suspects.stop()
        self.suspects.give_back()
        self.executor.give_back_ready()

    async def _drain(self) -> bool:
        drained = asyncio.create_task(self.executor.drain(self.shutdown_timeout))
        hurried = asyncio.create_task(self._hurry_event.wait())
        await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        drained.cancel()
        return not self.executor.running

    async def _write_all(self) -> None:
        """Wait until the finisher has written everything, as long as that can still succeed."""
        deadline = self.app.clock.monotonic() + self.lease.total_seconds()
        while self.finisher.pending and self.app.clock.monotonic() < deadline:
            self.finisher.wake()
            await asyncio.sleep(0.01)

    async def _until_idle(self) -> None:
        """Return once nothing was due, after that nothing could be claimed, and all the while nothing ran."""
        while not self._stop_event.is_set():
            ended = self._ended
            # Twice with a broker: an answer that is stored after what is due was looked for may make a job due, and is
            # counted a moment later.
            is_at_rest = await self._is_at_rest() and (self.broker is None or await self._is_at_rest())
            if is_at_rest and self._ended == ended:
                return
            await asyncio.sleep(IDLE_SECONDS)

    async def _is_at_rest(self) -> bool:
        if len(self.flights) or self.concluder.pending or not await self._promotes_nothing():
            return False
        await self._look_twice()
        has_sent_all = self.broker is None or await self.broker.is_idle()
        return not len(self.flights) and has_sent_all

    @property
    def _ended(self) -> int:
        return self.finisher.ended + (self.broker.answered if self.broker else 0)

    async def _promotes_nothing(self) -> bool:
        try:
            return not await self.promoter.run_once()
        except StoreError:
            return False  # who knows

    async def _look_twice(self) -> None:
        """Let the claimer find nothing twice: its first look may have begun before it was asked."""
        self.claimer.empty_passes = 0
        while self.claimer.empty_passes < IDLE_PASSES and not self._stop_event.is_set():
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
        return room(
            slots=self.concurrency,
            ahead=self.pace.ahead() if prefetch is None else prefetch,
            held=len(self.flights),
            over=self.finisher.pending,
            ready=self.executor.ready,
        )

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
        for service in self._upkeep:
            if service not in self._leaders:
                service.wake()


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended: a hint that came too late
        loop.call_soon_threadsafe(function)
