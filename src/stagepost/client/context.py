"""The context of a handler: its attempt, its children, and ways to end the job in its own transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from stagepost.client.children import (
    Child,
    Submission,
    read_children,
    read_children_async,
    submit_all,
    submit_all_async,
)
from stagepost.client.handle import JobHandle
from stagepost.client.running import RunningAttempt
from stagepost.client.tasks import AppTask
from stagepost.errors import Cancelled, TaskError, duration_of
from stagepost.model.batch import Item
from stagepost.model.context import ScheduleOrigin, TraceContext, identify
from stagepost.model.job import NewJob, to_datetime
from stagepost.model.other_libraries import CONTEXT_WORDS, missing_attribute
from stagepost.model.outcome import Failed, Snoozed
from stagepost.model.results import encode_progress

__all__ = ["JobContext", "current_job", "enter"]

P = ParamSpec("P")
R = TypeVar("R")

_current: ContextVar[JobContext | None] = ContextVar("stagepost_job", default=None)


class JobContext:
    """One attempt of a job, as its handler sees it.

    `complete`, `fail` and `snooze` end the attempt inside the caller's transaction: the job changes if and only if
    that transaction commits. They raise LeaseLost, which rolls the transaction back, if another attempt has taken
    over or if this one has already ended the job. `ack` and `nack` are aliases of `complete` and `fail`.

    `submit` creates children: the job ends after them and uses no slot while it waits. A child is identified by its
    key or, without one, by its number in the order of submission. An attempt that submits the same children as an
    earlier one therefore gets the same jobs.
    """

    def __init__(self, running: RunningAttempt) -> None:
        self._running = running

    if not TYPE_CHECKING:  # otherwise every misspelt attribute would pass type checks

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, name, CONTEXT_WORDS)

    @property
    def id(self) -> str:
        """The job's id, which is the same in every attempt; use it to deduplicate effects outside the database."""
        return self._running.job.id

    @property
    def task(self) -> str:
        """Name of the task."""
        return self._running.task.name

    @property
    def queue(self) -> str:
        """Name of the job's queue."""
        return self._running.job.queue_name

    @property
    def priority(self) -> int:
        """The job's priority."""
        return self._running.job.priority

    @property
    def attempt(self) -> int:
        """The attempt's number, counted from 1; it never decreases.

        It also grows without a failure: when a worker gives a job back before it starts, and after a snooze.
        """
        return self._running.job.attempt

    @property
    def failures(self) -> int:
        """Number of attempts that have failed before this one."""
        return self._running.job.failures

    @property
    def crashes(self) -> int:
        """Number of earlier attempts whose worker died."""
        return self._running.job.crashes

    @property
    def max_attempts(self) -> int:
        """Number of failures after which the job becomes a dead letter."""
        return self._running.job.max_attempts

    @property
    def available_at(self) -> datetime:
        """When the attempt was due, in UTC."""
        return to_datetime(self._running.job.available_at)

    @property
    def worker(self) -> str:
        """Id of the worker that runs the attempt."""
        return self._running.job.owner

    @property
    def trace(self) -> TraceContext:
        """Trace, correlation and user ids, and the job whose handler enqueued this one (`parent_id`)."""
        return self._running.trace

    @property
    def schedule(self) -> str | None:
        """Name of the schedule that enqueued the job; None if no schedule did."""
        return ScheduleOrigin.decode(self._running.job.context).schedule

    @property
    def due_at(self) -> datetime | None:
        """The due time of that schedule, in UTC."""
        return to_datetime(ScheduleOrigin.decode(self._running.job.context).due_at)

    @property
    def is_cancelled(self) -> bool:
        """Whether this attempt should stop, because someone asked for it or its lease is lost."""
        return self._running.is_cancelled

    @property
    def stop_reason(self) -> str | None:
        """Why this attempt should stop; None if it should not."""
        return self._running.stop_reason

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the attempt should stop; call this regularly in long work."""
        if self._running.stop_reason is not None:
            raise Cancelled(self._running.stop_reason)

    def report(self, progress: Any) -> None:
        """Publish the attempt's progress: any JSON value up to 10 KiB, such as a record or a number.

        Call it as often as you like: the latest value is written with the lease, at most about once a second. Raises
        PayloadError if the value cannot be encoded, or does not match the task's `progress` type.
        """
        self._running.reported = encode_progress(progress, annotation=self._running.task.options.progress)
        self._running.on_report()

    def submit(self, task: AppTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit a child in a separate transaction; raises LeaseLost if another attempt has taken over."""
        return self.using().submit(task, *args, **kwargs)

    async def submit_async(self, task: AppTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit a child without blocking the event loop."""
        return await self.using().submit_async(task, *args, **kwargs)

    def using(self, tx: Any = None, /, *, key: str | None = None, **options: Any) -> Submission:
        """Choose the transaction, the key and the `JobOptions` for the next child."""
        return Submission(self._running, tx, key, options)

    def submit_many(self, jobs: Iterable[NewJob | Item], *, tx: Any = None) -> list[JobHandle[Any]]:
        """Submit many children from `task.job(...)` or `task.item(key, ...)`, in transactions of 1,000 each."""
        return submit_all(self._running, jobs, tx)

    async def submit_many_async(self, jobs: Iterable[NewJob | Item], *, tx: Any = None) -> list[JobHandle[Any]]:
        """Submit many children without blocking the event loop."""
        return await submit_all_async(self._running, jobs, tx)

    def then(self, task: AppTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Continue the same job with this task when all children have ended; its result becomes the job's result.

        This takes effect if the attempt completes; the last of several calls counts. Return the value of this call
        from the handler: it is None, but has the continuation's return type for type checkers.
        """
        self._running.then = task.job(*args, **kwargs)
        return cast("R", None)

    @overload
    def children(self, task: AppTask[..., R], /) -> Iterator[Child[R]]: ...

    @overload
    def children(self, task: None = None, /) -> Iterator[Child[Any]]: ...

    def children(self, task: AppTask[..., Any] | None = None, /) -> Iterator[Child[Any]]:
        """Iterate over the job's children, optionally those of one task, page by page and in no particular order."""
        return read_children(self._running, task)

    @overload
    def children_async(self, task: AppTask[..., R], /) -> AsyncIterator[Child[R]]: ...

    @overload
    def children_async(self, task: None = None, /) -> AsyncIterator[Child[Any]]: ...

    def children_async(self, task: AppTask[..., Any] | None = None, /) -> AsyncIterator[Child[Any]]:
        """Read the job's children without blocking the event loop."""
        return read_children_async(self._running, task)

    def complete(self, tx: Any, result: Any = None) -> None:
        """Complete the job in the caller's transaction."""
        self._running.settle(tx, self._running.completed(result))

    async def complete_async(self, tx: Any, result: Any = None) -> None:
        """Complete the job in the caller's async transaction."""
        await self._running.settle_async(tx, self._running.completed(result))

    def fail(
        self,
        tx: Any,
        error: BaseException | str,
        *,
        backoff: timedelta | float | None = None,
        jitter: float | None = None,
    ) -> None:
        """Fail the attempt in the caller's transaction; the retry policy decides whether the job is tried again.

        `backoff` (a number means seconds) and `jitter` (a fraction) replace the policy's first delay and jitter.
        """
        self._running.settle(tx, self._running.failed(error, backoff=backoff, jitter=jitter))

    async def fail_async(
        self,
        tx: Any,
        error: BaseException | str,
        *,
        backoff: timedelta | float | None = None,
        jitter: float | None = None,
    ) -> None:
        """Fail the attempt in the caller's async transaction."""
        await self._running.settle_async(tx, self._running.failed(error, backoff=backoff, jitter=jitter))

    def snooze(self, tx: Any, delay: timedelta | float) -> None:
        """Reschedule the job in the caller's transaction, without counting a failure."""
        self._running.settle(tx, Snoozed(duration_of(delay, "delay")))

    async def snooze_async(self, tx: Any, delay: timedelta | float) -> None:
        """Reschedule the job in the caller's async transaction, without counting a failure."""
        await self._running.settle_async(tx, Snoozed(duration_of(delay, "delay")))

    ack, ack_async = complete, complete_async
    nack, nack_async = fail, fail_async

    def will_retry(self, error: BaseException) -> bool:
        """Return whether the job would be tried again if this attempt failed with `error`."""
        is_last = self.failures + 1 >= self.max_attempts
        return not is_last and isinstance(self._running.failed(error), Failed)


def current_job() -> JobContext:
    """Return the context of the running attempt, from anywhere below its handler."""
    context = _current.get()
    if context is None:
        raise TaskError("no job is running here: current_job() works only inside a task's handler.")
    return context


def enter(running: RunningAttempt) -> None:
    """Make this attempt the current one, for `current_job()`, log records and the trace ids of enqueued jobs."""
    _current.set(JobContext(running))
    identify(running.identity, running.trace)
