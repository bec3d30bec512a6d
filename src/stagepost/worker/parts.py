"""Builds the parts of a worker, each with what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property, partial

from stagepost.client.app import App
from stagepost.database.async_store import AsyncStore
from stagepost.loops.failure_log import FailureLog
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.model.outcome import Released
from stagepost.transport import Wakeups, wakeups_for
from stagepost.upkeep.alerting import AlertingRunner
from stagepost.upkeep.batch_rescuer import BatchRescuer
from stagepost.upkeep.leader import TERM, Leader
from stagepost.upkeep.move_compactor import MoveCompactor
from stagepost.upkeep.promoter import Promoter
from stagepost.upkeep.pruner import Pruner
from stagepost.upkeep.recounter import Recounter
from stagepost.upkeep.rescuer import Rescuer
from stagepost.upkeep.schedule_declarer import ScheduleDeclarer
from stagepost.upkeep.scheduler import Scheduler
from stagepost.upkeep.sent_job_requeuer import SentJobRequeuer
from stagepost.worker.broker import BrokerParts
from stagepost.worker.claim_room import ClaimRoom
from stagepost.worker.claimer import Claimer
from stagepost.worker.concluder import Concluder
from stagepost.worker.crash_isolation import CrashIsolation
from stagepost.worker.executor import Executor
from stagepost.worker.finisher import Finisher
from stagepost.worker.leased_ahead import LeasedAhead
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from stagepost.worker.limit_opener import LimitOpener
from stagepost.worker.loop import Loop, Stage
from stagepost.worker.pace import Pace
from stagepost.worker.processes import ProcessPool
from stagepost.worker.reporter import Reporter
from stagepost.worker.stop_requests import StopRequests
from stagepost.worker.worker_hooks import WorkerHooks

__all__ = ["Parts"]

RESCUE_SECONDS = 5.0
"""Interval between searches for expired leases, unless a third of a lease is shorter."""


class Parts:
    """The parts of one worker. Each is built when another part, or the table of loops, first needs it."""

    def __init__(
        self,
        app: App,
        table: Sequence[Loop[Parts]],
        *,
        owner: str,
        queues: Sequence[str],
        concurrency: int,
        lease: timedelta,
    ) -> None:
        self.app = app
        self._table = table
        self.owner = owner
        self.queues = queues
        self.concurrency = concurrency
        self.lease = lease
        self.requests = StopRequests()
        self.signals = Signals()
        self.attempts = LeasedAttempts()
        self.pace = Pace(app.clock)
        self.store = AsyncStore(app.store)
        self.failure_log = FailureLog(app.clock)

    @cached_property
    def loops(self) -> dict[Loop[Parts], Service]:
        """The loops that this worker runs, in the order of the table."""
        loops = {loop: service for loop in self._table if (service := loop.part(self)) is not None}
        for loop, service in loops.items():
            service.report_to(self.failure_log, name=loop.name)
        return loops

    def loops_of(self, stage: Stage) -> list[Service]:
        """Return the loops that a shutdown stops in this stage."""
        return [service for loop, service in self.loops.items() if loop.stage is stage]

    def loop_names(self) -> list[str]:
        """Return the names of the loops that this worker runs."""
        return [loop.name for loop in self.loops]

    @cached_property
    def finisher(self) -> Finisher:
        """Writes outcomes."""
        return Finisher(self.store, self.attempts, self.signals, notifies=self.app.settings.wakeups)

    @cached_property
    def executor(self) -> Executor:
        """Runs attempts."""
        return Executor(
            self.app.registry,
            self.finisher,
            self.signals,
            concurrency=self.concurrency,
            clock=self.app.clock,
            is_loop_closing=self.requests.is_loop_closing,
            children=ProcessPool(self.app.folder),
            hooks=self.app.hooks,
        )

    @cached_property
    def worker_hooks(self) -> WorkerHooks:
        """Calls the hooks of the app when the worker starts and stops."""
        return WorkerHooks(self.app.hooks)

    @cached_property
    def leased_ahead(self) -> LeasedAhead:
        """Returns jobs that wait too long for a slot."""
        return LeasedAhead(self.store, self.executor, self.pace, owner=self.owner, queues=self.queues)

    @cached_property
    def crash_isolation(self) -> CrashIsolation:
        """Runs suspects one at a time."""
        return CrashIsolation(self.store, self.attempts, self.finisher, start=self.executor.start, clock=self.app.clock)

    @cached_property
    def room(self) -> ClaimRoom:
        """How much this worker may hold."""
        prefetch = self.app.settings.prefetch
        return ClaimRoom(self.attempts, self.executor, self.finisher, self.pace, prefetch=prefetch)

    @cached_property
    def claimer(self) -> Claimer:
        """Leases jobs of queues that no broker carries."""
        app, settings = self.app, self.app.settings
        carries = settings.rabbitmq.carries if settings.transport is not None else lambda _queue: False
        return Claimer(
            self.store,
            self.attempts,
            self.signals,
            queues=[queue for queue in self.queues if not carries(queue)],
            task_names=[task.name for task in app.registry if not task.options.remote],
            owner=self.owner,
            lease=self.lease,
            room=self.room.jobs,
            start=self._start_attempts,
            clock=app.clock,
            poll_shortest_seconds=settings.poll_shortest_seconds,
            poll_longest_seconds=settings.poll_longest_seconds,
            rules=app.registry.limit_rules,
        )

    @cached_property
    def broker(self) -> BrokerParts | None:
        """What the worker does with a broker; None if it uses none."""
        url = self.app.settings.transport
        if url is None:
            return None
        return BrokerParts(
            self.app,
            url,
            self.store,
            self.attempts,
            self.signals,
            queues=self.queues,
            slots=self.concurrency,
            messages_ahead=self.room.messages_ahead,
            owner=self.owner,
            lease=self.lease,
            term=self.leader.term,
            start=self._start_attempts,
            alerts=self.alerts,
        )

    @cached_property
    def wakeups(self) -> Wakeups:
        """Hints from other processes that jobs are ready."""
        carried = self.broker.queues if self.broker else ()
        return wakeups_for(self.app.store, self.app.settings, queues={*self.queues, *carried})

    @cached_property
    def alerts(self) -> AlertingRunner:
        """Raises the app's alerts."""
        return AlertingRunner(self.store, self.signals, job_for=self.app.alert_job)

    @cached_property
    def leader(self) -> Leader:
        """Whether this worker leads the upkeep."""
        return Leader(self.store, self.signals, owner=self.owner, clock=self.app.clock, term=min(TERM, self.lease))

    @property
    def leaders(self) -> list[Leader]:
        """All leaderships that this worker takes part in."""
        return [self.leader, *([self.broker.broker_leader] if self.broker else ())]

    @cached_property
    def promoter(self) -> Promoter:
        """Queues what is due."""
        return Promoter(self.store, self.signals, rules=self.app.registry.limit_rules)

    @cached_property
    def limit_opener(self) -> LimitOpener:
        """Lets the next jobs of a limit start."""
        return LimitOpener(self.store, self.signals, rules=self.app.registry.limit_rules)

    @cached_property
    def rescuer(self) -> Rescuer:
        """Queues the jobs of dead workers."""
        interval = min(RESCUE_SECONDS, self.lease.total_seconds() / 3)
        return Rescuer(self.alerts, self.signals, interval=interval)

    @cached_property
    def scheduler(self) -> Scheduler:
        """Fires schedules."""
        return Scheduler(self.store, self.leader, self.signals)

    @cached_property
    def schedule_declarer(self) -> ScheduleDeclarer:
        """Renews the app's schedules."""
        return ScheduleDeclarer(self.store, self.leader, self.app.declared_schedules)

    @cached_property
    def concluder(self) -> Concluder:
        """Finishes batches of jobs that ended here."""
        return Concluder(self.store, self.signals, clock=self.app.clock)

    @cached_property
    def batch_rescuer(self) -> BatchRescuer:
        """Finishes batches that no worker finished."""
        return BatchRescuer(self.store, self.leader, self.signals)

    @cached_property
    def pruner(self) -> Pruner:
        """Deletes old history and events."""
        settings = self.app.settings
        return Pruner(
            self.store,
            self.leader,
            history_days=settings.history_days,
            events_days=settings.events_days,
            events_limit=settings.events_limit,
        )

    @cached_property
    def move_compactor(self) -> MoveCompactor:
        """Adds moves to the counts."""
        return MoveCompactor(self.store, self.leader, clock=self.app.clock)

    @cached_property
    def recounter(self) -> Recounter:
        """Compares counts with rows."""
        open_store = None if self.app.store.database.is_memory else partial(self.app.open_store, pool_size=1)
        return Recounter(self.store, self.leader, open_store=open_store)

    @cached_property
    def sent_job_requeuer(self) -> SentJobRequeuer | None:
        """Returns sent jobs to their queues; the reconciler does it where there is a broker."""
        return None if self.broker else SentJobRequeuer(self.store, self.leader, self.signals)

    @cached_property
    def reporter(self) -> Reporter:
        """Reports the worker's state."""
        return Reporter(
            self.store,
            self.attempts,
            self.executor,
            self.claimer,
            self.requests,
            owner=self.owner,
            slots=self.concurrency,
            queues=self.queues,
            tasks=[task.name for task in self.app.registry],
            loops=self.loop_names,
            clock=self.app.clock,
        )

    def _start_attempts(self, attempts: list[LeasedAttempt]) -> None:
        """Run leased jobs; those of a claim that was answered after a request to stop go back to their queue."""
        if not self.requests.is_stopping:
            self.crash_isolation.start(attempts)
            return
        for attempt in attempts:
            self.finisher.put(attempt, Released())
