"""Runs due jobs through the worker's own parts, without its loops, and reports the results."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from stagepost.client import App
from stagepost.client.running import RunningAttempt
from stagepost.database.async_store import AsyncStore
from stagepost.errors import StagepostError, WaitTimeout
from stagepost.loops.signals import Signals
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob, to_datetime
from stagepost.model.lifecycle import LIVE, JobState
from stagepost.model.outcome import Abandoned, Crashed, Failed, Outcome, Refused, Released
from stagepost.store.counting import count_by_state
from stagepost.store.jobs import get
from stagepost.store.leases import next_due
from stagepost.store.listing import list_jobs
from stagepost.store.schedules import fire_due, next_schedule_due
from stagepost.testing.clock import ManualClock
from stagepost.upkeep.batch_rescuer import BatchRescuer
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.promoter import Promoter
from stagepost.upkeep.scheduler import declare
from stagepost.worker.claimer import Claimer
from stagepost.worker.executor import Executor
from stagepost.worker.finisher import Finisher
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from stagepost.worker.process_main import perform
from stagepost.worker.processes import ProcessPool, Reply, RunningChild

__all__ = ["AttemptRecord", "Drained", "Drainer"]

MOST_RUNS = 10_000
LONGEST_RUN_SECONDS = 60.0
"""Limit in real time, not in the test's clock."""


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt, and the state in which it left its job."""

    job_id: str
    """Id of the job."""
    task: str
    """Name of its task."""
    attempt: int
    """Number of the attempt."""
    state: JobState
    """The state of the job after the attempt."""
    error: str | None = None
    """The error, if the attempt failed."""
    traceback: str | None = None
    """Where the error was raised."""


@dataclass(frozen=True)
class Drained:
    """The attempts that ran, in order, and the number of unfinished jobs by state."""

    runs: tuple[AttemptRecord, ...]
    """The attempts that ran, in order."""
    left: Mapping[JobState, int]
    """The number of unfinished jobs by state."""

    def count(self, state: JobState) -> int:
        """Count the attempts that left their job in a state."""
        return sum(run.state is state for run in self.runs)

    @property
    def completed(self) -> int:
        """Number of completed jobs."""
        return self.count(JobState.COMPLETED)

    @property
    def failed(self) -> tuple[AttemptRecord, ...]:
        """The attempts that failed, whether or not their jobs will be tried again."""
        return tuple(run for run in self.runs if run.state in FAILED)

    def raise_if_failed(self) -> None:
        """Raise AssertionError with all errors if an attempt failed."""
        __tracebackhide__ = True
        if self.failed:
            shown = [
                f"{run.task}, attempt {run.attempt}, {run.state}:\n{run.traceback or run.error}" for run in self.failed
            ]
            raise AssertionError(f"{len(self.failed)} of {len(self.runs)} attempts failed:\n\n" + "\n\n".join(shown))


FAILED = frozenset({JobState.RETRYING, JobState.FAILED, JobState.DEAD_LETTER})


class Drainer:
    """Promotes, claims, executes and settles in turn, so that results do not depend on real time."""

    def __init__(self, app: App, clock: ManualClock, *, queues: Collection[str] = (), concurrency: int = 1) -> None:
        self._app = app
        self._clock = clock
        self._store = app.async_store
        self._only_given = bool(queues)
        self._queues = sorted(queues or app.registry.queues)
        self._owner = new_id()
        self._attempts = LeasedAttempts()
        self._runs: list[AttemptRecord] = []
        self._signals = Signals()
        self._finisher = Recorder(self._store, self._attempts, self._signals)
        self._executor = Executor(
            app.registry,
            self._finisher,
            self._signals,
            concurrency=concurrency,
            clock=clock,
            children=SameProcess(),
            hooks=app.hooks,
        )
        # No token is taken early: the wait for it would take real time.
        self._rules = replace(app.registry.limit_rules, early_us=0)
        # Far ahead: the clock is moved from one due time to the next.
        self._promoter = Promoter(self._store, self._signals, rules=self._rules, ahead=timedelta(days=366))
        leader = Alone(self._store, self._signals, owner=self._owner, clock=clock)
        self._batch_rescuer = BatchRescuer(self._store, leader, self._signals)

    async def run(self, until: timedelta | datetime | None) -> Drained:
        """Run due jobs; with `until`, move the clock from one due time to the next up to that point."""
        target = None if until is None else self._instant(until)
        await declare(self._store, self._app.declared_schedules.values())
        try:
            while await self._run_round() or await self._find_more() or await self._move_on(target):
                if len(self._runs) > MOST_RUNS:
                    raise StagepostError(
                        f"drain ran {MOST_RUNS:,} attempts and more are due. Does a task enqueue itself forever? "
                        f"The last attempt was of task {self._runs[-1].task}."
                    )
        finally:
            self._executor.close()
        if target is not None:
            self._clock.advance(timedelta(microseconds=max(0, target - self._now())))
        counts = await self._store.run(count_by_state())
        return Drained(
            tuple(self._runs), {state: number for state, number in counts.items() if number and state in LIVE}
        )

    async def _run_round(self) -> int:
        """Run as many jobs as there are slots; returns how many were claimed."""
        promoted = await self._promoter.run_once(thorough=True)
        claimer = self._claimer()
        claimed = await claimer.run_once()
        while not claimed and claimer.interval == 0.0:  # the first jobs were blocked; the next may start
            claimed = await claimer.run_once()
        try:
            async with asyncio.timeout(LONGEST_RUN_SECONDS):
                while self._executor.running:
                    await self._executor.drain(LONGEST_RUN_SECONDS)
        except TimeoutError:
            names = ", ".join(attempt.job.task_name for attempt in self._attempts.all())
            raise WaitTimeout(f"drain stopped waiting for {names} after {LONGEST_RUN_SECONDS:g} s.") from None
        while self._finisher.pending:
            await self._finisher.run_once()
        for job, outcome in self._finisher.taken():
            self._runs.append(await self._look_at(job, outcome))
        return claimed + promoted

    def _claimer(self) -> Claimer:
        return Claimer(
            self._store,
            self._attempts,
            self._signals,
            queues=self._queues,
            task_names=[task.name for task in self._app.registry],
            owner=self._owner,
            lease=self._app.settings.lease_duration,
            room=lambda: self._executor.concurrency - len(self._attempts),
            start=self._executor.start,
            clock=self._clock,
            poll_shortest_seconds=1,
            poll_longest_seconds=1,
            rules=self._rules,
        )

    async def _find_more(self) -> bool:
        """Conclude batches, fire due schedules, and find jobs in queues that no task uses."""
        if await self._batch_rescuer.run_once():
            return True
        fired = await self._store.run(fire_due())
        if fired.errors:
            raise StagepostError(f"schedules cannot fire: {dict(fired.errors)}")
        if fired.runs or self._only_given:
            return bool(fired.runs)
        known = {task.name for task in self._app.registry}
        queued = await self._store.run(list_jobs(states=[JobState.QUEUED], most=MOST_RUNS))
        new = {job.queue_name for job in queued if job.task_name in known} - set(self._queues)
        self._queues += sorted(new)
        return bool(new)

    async def _move_on(self, target: int | None) -> bool:
        """Move the clock to the next due time, unless that is after the target; returns whether it moved."""
        if target is None:
            return False
        dues = [await self._store.run(next_due()), await self._store.run(next_schedule_due())]
        due = min((due for due in dues if due is not None and due > timedelta(0)), default=None)
        if due is None or self._now() + due // timedelta(microseconds=1) > target:
            return False
        self._clock.advance(due)
        return True

    async def _look_at(self, job: LeasedJob, outcome: Outcome) -> AttemptRecord:
        """Read the state in which an attempt left its job, which may differ from what its handler returned."""
        state = (await self._store.run(get(job.id))).state
        match outcome:
            case Failed(error=error, traceback=traceback) | Refused(error=error, traceback=traceback):
                return AttemptRecord(job.id, job.task_name, job.attempt, state, error, traceback)
            case Abandoned(reason=error) | Crashed(error=error):
                return AttemptRecord(job.id, job.task_name, job.attempt, state, error)
            case _:
                return AttemptRecord(job.id, job.task_name, job.attempt, state)

    def _instant(self, until: timedelta | datetime) -> int:
        if isinstance(until, timedelta):
            return self._now() + until // timedelta(microseconds=1)
        return self._now() + (until - to_datetime(self._now())) // timedelta(microseconds=1)

    def _now(self) -> int:
        return self._clock.instant() or 0


class Alone(Leader):
    """Leads without an election, because a test has only one process."""

    @property
    def is_leading(self) -> bool:
        """Always true."""
        return True


class SameProcess(ProcessPool):
    """Runs `pool="process"` tasks in this process, because a child would not see the test's database and patches."""

    def run(self, running: RunningAttempt, child: RunningChild) -> Reply:  # noqa: ARG002 - there is no child
        """Run an attempt in the thread that would otherwise wait for the child."""
        return Reply(perform(running), running.settlement)


class Recorder(Finisher):
    """Records the outcomes of attempts, for the summary."""

    def __init__(self, store: AsyncStore, attempts: LeasedAttempts, signals: Signals) -> None:
        super().__init__(store, attempts, signals)
        self._outcomes: list[tuple[LeasedJob, Outcome]] = []

    def put(self, attempt: LeasedAttempt, outcome: Outcome) -> None:
        """Record an outcome, unless the job was released without running."""
        if not isinstance(outcome, Released):
            self._outcomes.append((attempt.job, outcome))
        super().put(attempt, outcome)

    def taken(self) -> list[tuple[LeasedJob, Outcome]]:
        """Return and clear the recorded outcomes."""
        taken, self._outcomes = self._outcomes, []
        return taken
