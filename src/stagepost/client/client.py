"""The client, which enqueues and manages jobs from plain and from async code."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, Self, TypeVar

from stagepost.client.arguments import actor_of, choices, filter_of, known_id, page_size, page_start
from stagepost.client.records import Job
from stagepost.client.waiting import late, pauses
from stagepost.client.worker_waker import WorkerWaker
from stagepost.clock import sleep
from stagepost.database.async_store import AsyncStore
from stagepost.database.statement import Operation
from stagepost.database.store import Store
from stagepost.database.transaction import run_in, run_in_async
from stagepost.errors import JobFailed, UnknownTask, WaitTimeout, duration_of
from stagepost.model.batch import Counts
from stagepost.model.children import NewChild
from stagepost.model.job import Enqueued, FailureRecord, JobRow, LeasedJob, NewJob
from stagepost.model.lifecycle import FINAL, JobState
from stagepost.model.option_types import check_type
from stagepost.model.results import decode_progress, decode_result
from stagepost.model.series import JobSeries
from stagepost.store import cancelling, counting, jobs
from stagepost.store.children import submit_children
from stagepost.store.listing import list_jobs
from stagepost.store.wait_reasons import why_job_waits
from stagepost.task import Registry, Task, check_job, check_jobs

__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """Enqueues and manages jobs.

    A method that ends in `_async` does the same as its namesake without blocking the event loop. `tx` is a connection
    or session with an open transaction, which must be async for these methods.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        async_store: AsyncStore | None = None,
        waker: WorkerWaker | None = None,
    ) -> None:
        self._store = store
        self._async_store = async_store or AsyncStore(store)
        self._registry = registry
        self._waker = waker or WorkerWaker(store.notifier)
        self.patience: timedelta | None = None
        """How long its calls wait for a database that is away; None means the setting `patience_seconds`."""

    def using(self, *, patience: timedelta | float) -> Self:
        """Return a client whose calls wait at most this long for a database that is away, instead of the setting."""
        client = copy(self)
        client.patience = duration_of(patience, "patience")
        return client

    def enqueue(self, job: NewJob, *, tx: Any = None) -> Enqueued:
        """Store one job; if a live job already holds its unique key, return that job."""
        check_job("client.enqueue: the job", job)
        enqueued = self._run(jobs.enqueue(job, notify=self._waker.to_others), tx)
        self._note([job], [enqueued], tx)
        return enqueued

    async def enqueue_async(self, job: NewJob, *, tx: Any = None) -> Enqueued:
        """Store one job without blocking the event loop."""
        check_job("client.enqueue_async: the job", job)
        enqueued = await self._run_async(jobs.enqueue(job, notify=self._waker.to_others), tx)
        self._note([job], [enqueued], tx)
        return enqueued

    def enqueue_many(self, new_jobs: Sequence[NewJob] | JobSeries, *, tx: Any = None) -> list[Enqueued]:
        """Store many jobs in one transaction, either all or none."""
        new_jobs = new_jobs if isinstance(new_jobs, JobSeries) else _list_of(new_jobs)
        enqueued = self._run(jobs.enqueue_many(new_jobs, notify=self._waker.to_others), tx)
        self._note(new_jobs, enqueued, tx)
        return enqueued

    async def enqueue_many_async(self, new_jobs: Sequence[NewJob] | JobSeries, *, tx: Any = None) -> list[Enqueued]:
        """Store many jobs in one transaction without blocking the event loop."""
        new_jobs = new_jobs if isinstance(new_jobs, JobSeries) else _list_of(new_jobs)
        enqueued = await self._run_async(jobs.enqueue_many(new_jobs, notify=self._waker.to_others), tx)
        self._note(new_jobs, enqueued, tx)
        return enqueued

    def submit(self, parent: LeasedJob, children: Sequence[NewChild], *, tx: Any = None) -> list[Enqueued]:
        """Store children of a running job; handlers call this through their context."""
        made = self._run(submit_children(parent, children, notify=self._waker.to_others), tx)
        self._note([child.job for child in children], made, tx)
        return made

    async def submit_async(self, parent: LeasedJob, children: Sequence[NewChild], *, tx: Any = None) -> list[Enqueued]:
        """Store children of a running job without blocking the event loop."""
        made = await self._run_async(submit_children(parent, children, notify=self._waker.to_others), tx)
        self._note([child.job for child in children], made, tx)
        return made

    def children_of(self, job_id: str) -> Counts:
        """Count a job's children by state."""
        return self._run(counting.count_items(known_id(job_id)))

    async def children_of_async(self, job_id: str) -> Counts:
        """Count a job's children by state without blocking the event loop."""
        return await self._run_async(counting.count_items(known_id(job_id)))

    def progress_of(self, job_id: str) -> Any:
        """Return the latest progress that a job reported, as its task's `progress` type; None if there is none."""
        return typed_progress(self._run(jobs.get(known_id(job_id))), self._registry)

    async def progress_of_async(self, job_id: str) -> Any:
        """Return the latest progress that a job reported, without blocking the event loop."""
        return typed_progress(await self._run_async(jobs.get(known_id(job_id))), self._registry)

    def job(self, job_id: str, *, tx: Any = None) -> Job:
        """Read a job, live or ended; raises JobNotFound."""
        return Job(self._run(jobs.get(known_id(job_id)), tx))

    async def job_async(self, job_id: str, *, tx: Any = None) -> Job:
        """Read a job without blocking the event loop."""
        return Job(await self._run_async(jobs.get(known_id(job_id)), tx))

    def jobs(
        self,
        *,
        states: Iterable[JobState] = (),
        task: str | None = None,
        queue: str | None = None,
        parent_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Job]:
        """List a page of up to 1,000 jobs, newest first; `before` is the last id of the previous page."""
        return [Job(row) for row in self._run(_page(states, task, queue, parent_id, before, limit))]

    async def jobs_async(
        self,
        *,
        states: Iterable[JobState] = (),
        task: str | None = None,
        queue: str | None = None,
        parent_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Job]:
        """List a page of jobs without blocking the event loop."""
        page = await self._run_async(_page(states, task, queue, parent_id, before, limit))
        return [Job(row) for row in page]

    def failures(self, job_id: str) -> list[FailureRecord]:
        """List the attempts that did not complete a job, oldest first."""
        return self._run(jobs.failures_of(known_id(job_id)))

    async def failures_async(self, job_id: str) -> list[FailureRecord]:
        """List the attempts that did not complete a job without blocking the event loop."""
        return await self._run_async(jobs.failures_of(known_id(job_id)))

    def cancel(self, job_id: str, *, actor: str | None = None, tx: Any = None) -> JobState:
        """Cancel a job, or ask a running one to stop; returns the job's state after the call."""
        state = self._run(cancelling.cancel_job(known_id(job_id), actor=actor_of(actor)), tx)
        self._waker.notify_stop(state, tx)
        return state

    async def cancel_async(self, job_id: str, *, actor: str | None = None, tx: Any = None) -> JobState:
        """Cancel a job, or ask it to stop, without blocking the event loop."""
        state = await self._run_async(cancelling.cancel_job(known_id(job_id), actor=actor_of(actor)), tx)
        self._waker.notify_stop(state, tx)
        return state

    def retry(self, *job_ids: str, actor: str | None = None, tx: Any = None) -> list[str]:
        """Queue ended jobs again and return their ids; jobs that have not ended are left out.

        If one of them does not exist, it raises JobNotFound, and none is queued.
        A batch that is done stays done when one of its items is retried; an unfinished batch waits for the item.
        """
        return self._run(jobs.retry([known_id(one) for one in job_ids], actor=actor_of(actor)), tx)

    async def retry_async(self, *job_ids: str, actor: str | None = None, tx: Any = None) -> list[str]:
        """Queue ended jobs again without blocking the event loop."""
        return await self._run_async(jobs.retry([known_id(one) for one in job_ids], actor=actor_of(actor)), tx)

    def wait(self, job_id: str, *, timeout: timedelta | float | None = None) -> JobState:
        """Wait until a job ends and return its state."""
        return self._ended(job_id, timeout).state

    async def wait_async(self, job_id: str, *, timeout: timedelta | float | None = None) -> JobState:
        """Wait until a job ends and return its state without blocking the event loop."""
        return (await self._ended_async(job_id, timeout)).state

    def result(self, job_id: str, *, timeout: timedelta | float | None = None) -> Any:
        """Wait until a job ends and return its result, decoded as its task's return type."""
        return result_of(self._ended(job_id, timeout), self._registry)

    async def result_async(self, job_id: str, *, timeout: timedelta | float | None = None) -> Any:
        """Wait until a job ends and return its result without blocking the event loop."""
        return result_of(await self._ended_async(job_id, timeout), self._registry)

    def _note(self, asked: Sequence[NewJob] | JobSeries, enqueued: Sequence[Enqueued], tx: Any) -> None:
        """Wake workers and count the new jobs, at once or, with a transaction of the app, after its commit."""
        self._waker.wake(asked, tx)
        new = new_by_task(asked, enqueued)
        notifier, counts = self._store.notifier, self._store.counts
        if tx is not None and notifier.has_lent(tx):
            notifier.call_after_commit(tx, lambda: counts.note_submitted(new))
        else:
            counts.note_submitted(new)

    def _ended(self, job_id: str, timeout: timedelta | float | None) -> JobRow:
        for pause in pauses(timeout, f"job {job_id}"):
            job = self._run(jobs.get(known_id(job_id)))
            if job.state in FINAL:
                return job
            sleep(pause)
        raise _late(job_id, timeout, self._run(why_job_waits(known_id(job_id))))

    async def _ended_async(self, job_id: str, timeout: timedelta | float | None) -> JobRow:
        for pause in pauses(timeout, f"job {job_id}"):
            job = await self._run_async(jobs.get(known_id(job_id)))
            if job.state in FINAL:
                return job
            await asyncio.sleep(pause)
        raise _late(job_id, timeout, await self._run_async(why_job_waits(known_id(job_id))))

    @property
    def _patience_seconds(self) -> float | None:
        return None if self.patience is None else self.patience.total_seconds()

    def _run(self, operation: Operation[T], tx: Any = None) -> T:
        if tx is None:
            return self._store.run(operation, patience_seconds=self._patience_seconds)
        return run_in(tx, operation, clock=self._store.clock, database=self._store.callers_database)

    async def _run_async(self, operation: Operation[T], tx: Any = None) -> T:
        if tx is None:
            return await self._async_store.run(operation, patience_seconds=self._patience_seconds)
        return await run_in_async(tx, operation, clock=self._store.clock, database=self._store.callers_database)


def new_by_task(asked: Sequence[NewJob] | JobSeries, enqueued: Sequence[Enqueued]) -> dict[str, int]:
    """Count the jobs that an enqueue created, by task."""
    if isinstance(asked, JobSeries):
        return {asked.pattern.task_name: sum(one.is_new for one in enqueued)}
    return Counter(job.task_name for job, one in zip(asked, enqueued, strict=True) if one.is_new)


def result_of(job: JobRow, registry: Registry) -> Any:
    """Decode an ended job's result, or raise what it ended with."""
    if job.state not in {JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS}:
        raise JobFailed(job.id, job.state, job.error)
    return typed_result(job, registry)


def typed_result(job: JobRow, registry: Registry) -> Any:
    """Decode a job's result as its task's return type, or as plain JSON if the task is not known here."""
    return decode_result(job.result, _declared(job, registry, lambda task: task.signature.result_annotation))


def typed_progress(job: JobRow, registry: Registry) -> Any:
    """Decode a job's progress as its task's `progress` type, or as plain JSON if the task is not known here."""
    return decode_progress(job.progress, _declared(job, registry, lambda task: task.options.progress))


def _list_of(jobs: Iterable[NewJob]) -> list[NewJob]:
    check_type("new_jobs", jobs, Iterable)
    listed = list(jobs)
    check_jobs("new_jobs", listed)
    return listed


def _page(
    states: Iterable[JobState],
    task: str | None,
    queue: str | None,
    parent_id: str | None,
    before: str | None,
    limit: int,
) -> Operation[list[JobRow]]:
    return list_jobs(
        states=choices("states", states, JobState),
        queue_name=filter_of("queue", queue),
        task_name=filter_of("task", task),
        batch_id=None if parent_id is None else known_id(parent_id),
        before=page_start(before),
        most=page_size(limit),
    )


def _declared(job: JobRow, registry: Registry, of: Callable[[Task[..., Any]], Any]) -> Any:
    try:
        return of(registry.get(job.task_name))
    except UnknownTask:
        return Any


def _late(job_id: str, timeout: timedelta | float | None, why: str) -> WaitTimeout:
    return late(timeout, f"job {job_id}", missing="did not end", why=why)
