"""A client that runs a job immediately, before `enqueue` returns."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from stagepost.client import App, Client
from stagepost.client.context import current_job, enter
from stagepost.client.hooks import fails_attempt
from stagepost.client.running import RunningAttempt, outcome_of
from stagepost.database.statement import Statements, query
from stagepost.database.threads import call_in_thread
from stagepost.database.transaction import run_in, run_in_async
from stagepost.model.children import NewChild
from stagepost.model.identity import new_id
from stagepost.model.job import Enqueued, LeasedJob, NewJob
from stagepost.model.outcome import Abandoned, Completed, Outcome, Released, Snoozed
from stagepost.model.series import JobSeries
from stagepost.store import jobs
from stagepost.store.children import submit_children
from stagepost.store.concluding import conclude, follow_up
from stagepost.store.leases import claim
from stagepost.store.settlement import Settlement
from stagepost.store.settling import settle
from stagepost.worker.isolated_context import run_in_own_context

__all__ = ["InlineClient"]

T = TypeVar("T")

MOST_QUEUED = 1000


class InlineClient(Client):
    """Runs jobs in the calling thread or coroutine.

    From plain code, `async def` tasks run on a new event loop; from a coroutine, plain tasks block its loop.
    """

    def __init__(self, app: App) -> None:
        super().__init__(app.store, app.registry, async_store=app.async_store)
        self._attempts = Attempts(app)
        app.store.notifier.subscribe(self.run_committed, awaited=self.run_committed_async)

    def enqueue(self, job: NewJob, *, tx: Any = None) -> Enqueued:
        """Store one job and run it, now or when `app.transaction()` commits."""
        if tx is not None and self._store.notifier.has_lent(tx):
            return super().enqueue(_at_once(job), tx=tx)
        if tx is not None:
            run_in(tx, _nothing(), clock=self._store.clock, database=self._store.callers_database)
        enqueued, leased = self._attempts.take(job)
        self._run_here(leased)
        return enqueued

    def enqueue_many(self, new_jobs: Sequence[NewJob] | JobSeries, *, tx: Any = None) -> list[Enqueued]:
        """Store and run one job after another, up to the first that raises."""
        return [self.enqueue(job, tx=tx) for job in list(new_jobs)]

    def submit(self, parent: LeasedJob, children: Sequence[NewChild], *, tx: Any = None) -> list[Enqueued]:
        """Store and run one child after another; an exception from a child is raised here, in its parent's handler."""
        if tx is not None and self._store.notifier.has_lent(tx):
            return super().submit(parent, [_child_at_once(child) for child in children], tx=tx)
        if tx is not None:
            run_in(tx, _nothing(), clock=self._store.clock, database=self._store.callers_database)
        submitted: list[Enqueued] = []
        for child in children:
            enqueued, leased = self._attempts.take_child(parent, child)
            self._run_here(leased)
            submitted.append(enqueued)
        return submitted

    async def enqueue_async(self, job: NewJob, *, tx: Any = None) -> Enqueued:
        """Store one job and run it in the calling coroutine, now or when `app.transaction()` commits."""
        if tx is not None and self._store.notifier.has_lent(tx):
            return await super().enqueue_async(_at_once(job), tx=tx)
        if tx is not None:
            await run_in_async(tx, _nothing(), clock=self._store.clock, database=self._store.callers_database)
        enqueued, leased = self._attempts.take(job)
        await self._run_in_coroutine(leased)
        return enqueued

    async def enqueue_many_async(self, new_jobs: Sequence[NewJob] | JobSeries, *, tx: Any = None) -> list[Enqueued]:
        """Store and run one job after another, up to the first that raises."""
        return [await self.enqueue_async(job, tx=tx) for job in list(new_jobs)]

    async def submit_async(self, parent: LeasedJob, children: Sequence[NewChild], *, tx: Any = None) -> list[Enqueued]:
        """Store and run one child after another; an exception from a child is raised here, in its parent's handler."""
        if tx is not None and self._store.notifier.has_lent(tx):
            return await super().submit_async(parent, [_child_at_once(child) for child in children], tx=tx)
        if tx is not None:
            await run_in_async(tx, _nothing(), clock=self._store.clock, database=self._store.callers_database)
        submitted: list[Enqueued] = []
        for child in children:
            enqueued, leased = self._attempts.take_child(parent, child)
            await self._run_in_coroutine(leased)
            submitted.append(enqueued)
        return submitted

    def run_committed(self, queues: Collection[str]) -> None:
        """Run jobs that were enqueued in `app.transaction()`, after its commit."""
        for queue in sorted(queues):
            for leased in self._attempts.lease(queue, [task.name for task in self._registry]):
                self._run_here(leased)

    async def run_committed_async(self, queues: Collection[str]) -> None:
        """Run jobs that were enqueued in `async with app.transaction()`, after its commit."""
        for queue in sorted(queues):
            for leased in self._attempts.lease(queue, [task.name for task in self._registry]):
                await self._run_in_coroutine(leased)

    def _run_here(self, job: LeasedJob | None) -> None:
        while job is not None:
            run = _on_a_loop if self._registry.get(job.task_name).is_async else _without_a_loop
            job = run(partial(self._attempts.run, job))

    async def _run_in_coroutine(self, job: LeasedJob | None) -> None:
        while job is not None:
            job = await self._attempts.run(job)


class Attempts:
    """Stores, leases, runs and settles the jobs of a test."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._owner = new_id()
        self._taking = threading.Lock()

    def take(self, job: NewJob) -> tuple[Enqueued, LeasedJob | None]:
        """Store a job, and lease it if it is new and its queue is not paused."""
        with self._taking:
            enqueued = self._app.store.run(jobs.enqueue(_at_once(job)))
            leased = self._lease_one(job.id, job) if enqueued.is_new else None
        return enqueued, leased

    def take_child(self, parent: LeasedJob, child: NewChild) -> tuple[Enqueued, LeasedJob | None]:
        """Store a child of a running job, and lease it if it can be claimed."""
        with self._taking:
            [enqueued] = self._app.store.run(submit_children(parent, [_child_at_once(child)]))
            return enqueued, self._lease_one(enqueued.id, child.job)

    def _lease_one(self, job_id: str, job: NewJob) -> LeasedJob | None:
        leased = self.lease(job.queue_name, [job.task_name])
        # Other jobs, such as those that the test restarted, wait for drain().
        others = [Settlement.of(other, Released()) for other in leased if other.id != job_id]
        if others:
            self._app.store.run(settle(others))
        return next((mine for mine in leased if mine.id == job_id), None)

    def lease(self, queue: str, task_names: Sequence[str]) -> list[LeasedJob]:
        """Lease all jobs that can be claimed."""
        lease = self._app.settings.lease_duration
        return self._app.store.run(
            claim(queue, owner=self._owner, task_names=task_names, slots=MOST_QUEUED, lease=lease)
        )

    async def run(self, job: LeasedJob) -> LeasedJob | None:
        """Run one attempt and settle it; raises what the task raised, and suspends only where the task does.

        Returns the job's continuation, leased, if it can run now.
        """
        return await run_in_own_context(self._run(job), on_wait=lambda: None)

    async def _run(self, job: LeasedJob) -> LeasedJob | None:
        task, hooks = self._app.registry.get(job.task_name), self._app.hooks
        running = RunningAttempt(job, task, self._app.clock)
        enter(running)
        try:
            args, kwargs = task.signature.decode(job.payload)
            function = hooks.wrap(task) if hooks.around else task.function
            result = function(*((current_job(),) if task.wants_context else ()), *args, **kwargs)
            outcome: Outcome = running.completed(await result if task.is_async else result)
        except BaseException as error:
            outcome = outcome_of(error, job, task)
            if fails_attempt(error, outcome) and not running.is_settled:
                if task.is_async:
                    await hooks.report_failure_async(error, call=_call_directly)
                else:
                    hooks.report_failure(error, run=_run_coroutine)
            if not isinstance(outcome, Snoozed | Abandoned):
                self._settle(job, outcome)
                raise
        then: NewJob | None = None
        if isinstance(outcome, Completed) and outcome.ending and outcome.ending.then:
            then = _at_once(outcome.ending.then)
            outcome = Completed(outcome.result, msgspec.structs.replace(outcome.ending, then=then))
        self._settle(job, outcome)
        return None if then is None else self._lease_one(job.id, then)

    def _settle(self, job: LeasedJob, outcome: Outcome) -> None:
        self._app.store.run(settle([Settlement.of(job, outcome)]))
        batch_id = job.batch_id
        while batch_id is not None:
            batch_id = follow_up(self._app.store.run(conclude(batch_id)))


def _at_once(job: NewJob) -> NewJob:
    return msgspec.structs.replace(job, delay_us=0, available_at=None, limit_key=None, limit=None)


def _child_at_once(child: NewChild) -> NewChild:
    return msgspec.structs.replace(child, job=_at_once(child.job))


@query
def _nothing() -> Statements[None]:
    """Write nothing, but raise the same error as production for a connection that cannot be used."""
    yield from ()


def _without_a_loop(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        start().send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a plain function cannot suspend")


async def _call_directly(function: Callable[[], None]) -> None:
    function()


def _run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    return _on_a_loop(lambda: coroutine)


def _on_a_loop(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a new event loop, in another thread if this one already runs a loop."""

    def run() -> T:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(start())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    return call_in_thread(partial(contextvars.copy_context().run, run), name="stagepost-inline").result()
