"""The context of a handler: its attempt, its children, and ways to end the job in its own transaction."""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any, ParamSpec, TypeVar, cast, overload

from stagepost.client.children import (
    Child,
    Submission,
    read_children,
    read_children_async,
    submit_all,
    submit_all_async,
)
from stagepost.client.handle import JobHandle
from stagepost.client.tasks import AppTask, app_of
from stagepost.clock import Clock
from stagepost.database.statement import Operation
from stagepost.database.transaction import run_in, run_in_async
from stagepost.errors import Cancelled, LeaseLost, PayloadError, Snooze, TaskError, duration_of
from stagepost.model.batch import Item
from stagepost.model.children import DeferredOutcome, OnChildFailed
from stagepost.model.context import JobIdentity, Occasion, TraceContext, identify
from stagepost.model.job import LeasedJob, NewJob, to_datetime
from stagepost.model.outcome import Abandoned, Completed, Failed, Outcome, Refused, Snoozed
from stagepost.model.results import encode_progress, encode_result
from stagepost.model.retry import describe_error
from stagepost.store.settlement import Fence, Settlement
from stagepost.store.settling import settle
from stagepost.task import Task

__all__ = ["JobContext", "current_job", "enter", "outcome_of"]

P = ParamSpec("P")
R = TypeVar("R")

_random = random.Random()  # noqa: S311 - spreads retries
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

    def __init__(self, job: LeasedJob, task: Task[..., Any], clock: Clock) -> None:
        self.job = job
        self.task = task
        self.trace = TraceContext.decode(job.context)
        self.settled_in_transaction = False
        """The handler has ended the attempt in a transaction, which may or may not have committed."""
        self.is_settled = False
        """That transaction has committed."""
        self.identity = JobIdentity(job.id, job.task_name, job.attempt)
        """What logs show of it, and what its handler is waiting for while it holds its slot."""
        self.numbers = count()
        """Numbers the children that this attempt submits without keys."""
        self.reported: str | None = None
        """The latest progress, encoded; the lease keeper writes it to the database."""
        self.on_report: Callable[[], None] = _nothing
        """Called when there is new progress, in the thread that reports it."""
        self._then: NewJob | None = None
        self._clock = clock
        self._stop_reason: str | None = None

    @property
    def id(self) -> str:
        """The job's id, which is the same in every attempt; use it to deduplicate effects outside the database."""
        return self.job.id

    @property
    def attempt(self) -> int:
        """The attempt's number, counted from 1; it never decreases.

        It also grows without a failure: when a worker gives a job back before it starts, and after a snooze.
        """
        return self.job.attempt

    @property
    def schedule(self) -> str | None:
        """Name of the schedule that enqueued the job; None if no schedule did."""
        return Occasion.decode(self.job.context).schedule

    @property
    def due_at(self) -> datetime | None:
        """The due time of that schedule, in UTC."""
        return to_datetime(Occasion.decode(self.job.context).due_at)

    @property
    def is_cancelled(self) -> bool:
        """Whether this attempt should stop, because someone asked for it or its lease is lost."""
        return self._stop_reason is not None

    @property
    def stop_reason(self) -> str | None:
        """Why this attempt should stop; None if it should not."""
        return self._stop_reason

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the attempt should stop; call this regularly in long work."""
        if self._stop_reason is not None:
            raise Cancelled(self._stop_reason)

    def request_stop(self, reason: str) -> None:
        """Ask the handler to stop; the worker calls this."""
        self._stop_reason = self._stop_reason or reason

    def report(self, progress: Any) -> None:
        """Publish the attempt's progress: any JSON value up to 10 KiB, such as a record or a number.

        Call it as often as you like: the latest value is written with the lease, at most about once a second. Raises
        PayloadError if the value cannot be encoded, or does not match the task's `progress` type.
        """
        self.reported = encode_progress(progress, annotation=self.task.options.progress)
        self.on_report()

    def submit(self, task: AppTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit a child in a separate transaction; raises LeaseLost if another attempt has taken over."""
        return self.using().submit(task, *args, **kwargs)

    async def submit_async(self, task: AppTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit a child without blocking the event loop."""
        return await self.using().submit_async(task, *args, **kwargs)

    def using(self, tx: Any = None, /, *, key: str | None = None, **options: Any) -> Submission:
        """Choose the transaction, the key and the `JobOptions` for the next child."""
        return Submission(self, tx, key, options)

    def submit_many(self, jobs: Iterable[NewJob | Item], *, tx: Any = None) -> list[JobHandle[Any]]:
        """Submit many children from `task.job(...)` or `task.item(key, ...)`, in transactions of 1,000 each."""
        return submit_all(self, jobs, tx)

    async def submit_many_async(self, jobs: Iterable[NewJob | Item], *, tx: Any = None) -> list[JobHandle[Any]]:
        """Submit many children without blocking the event loop."""
        return await submit_all_async(self, jobs, tx)

    def then(self, task: AppTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Continue the same job with this task when all children have ended; its result becomes the job's result.

        This takes effect if the attempt completes; the last of several calls counts. Return the value of this call
        from the handler: it is None, but has the continuation's return type for type checkers.
        """
        self._then = task.job(*args, **kwargs)
        return cast("R", None)

    @overload
    def children(self, task: AppTask[..., R], /) -> Iterator[Child[R]]: ...

    @overload
    def children(self, task: None = None, /) -> Iterator[Child[Any]]: ...

    def children(self, task: AppTask[..., Any] | None = None, /) -> Iterator[Child[Any]]:
        """Iterate over the job's children, optionally those of one task, page by page and in no particular order."""
        return read_children(self, task)

    @overload
    def children_async(self, task: AppTask[..., R], /) -> AsyncIterator[Child[R]]: ...

    @overload
    def children_async(self, task: None = None, /) -> AsyncIterator[Child[Any]]: ...

    def children_async(self, task: AppTask[..., Any] | None = None, /) -> AsyncIterator[Child[Any]]:
        """Read the job's children without blocking the event loop."""
        return read_children_async(self, task)

    def complete(self, tx: Any, result: Any = None) -> None:
        """Complete the job in the caller's transaction."""
        self._settle(tx, self.completed(result))

    async def complete_async(self, tx: Any, result: Any = None) -> None:
        """Complete the job in the caller's async transaction."""
        await self._settle_async(tx, self.completed(result))

    def fail(
        self, tx: Any, error: BaseException | str, *, backoff: float | None = None, jitter: float | None = None
    ) -> None:
        """Fail the attempt in the caller's transaction; the retry policy decides whether the job is tried again."""
        self._settle(tx, self.failed(error, backoff=backoff, jitter=jitter))

    async def fail_async(
        self, tx: Any, error: BaseException | str, *, backoff: float | None = None, jitter: float | None = None
    ) -> None:
        """Fail the attempt in the caller's async transaction."""
        await self._settle_async(tx, self.failed(error, backoff=backoff, jitter=jitter))

    def snooze(self, tx: Any, delay: timedelta | float) -> None:
        """Reschedule the job in the caller's transaction, without counting a failure."""
        self._settle(tx, Snoozed(duration_of(delay, "delay")))

    async def snooze_async(self, tx: Any, delay: timedelta | float) -> None:
        """Reschedule the job in the caller's async transaction, without counting a failure."""
        await self._settle_async(tx, Snoozed(duration_of(delay, "delay")))

    ack, ack_async = complete, complete_async
    nack, nack_async = fail, fail_async

    def completed(self, result: Any) -> Completed:
        """Encode a result as the task's return type."""
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()  # otherwise Python warns that it was never awaited
            raise PayloadError(
                f"task {self.task.name} returned a coroutine, which nothing awaits. Declare it as `async def`; "
                f"if it has a decorator, the wrapper must be `async def` too."
            )
        options = self.task.options
        encoded = encode_result(result, annotation=self.task.signature.result_annotation, limits=options.limits)
        if self._then is None and options.on_child_failed == OnChildFailed.FINISH:
            return Completed(encoded)
        return Completed(
            encoded, DeferredOutcome(on_child_failed=OnChildFailed(options.on_child_failed), then=self._then)
        )

    def failed(
        self, error: BaseException | str, *, backoff: float | None = None, jitter: float | None = None
    ) -> Outcome:
        """Classify an error by the task's policy; `backoff` (seconds) and `jitter` (a fraction) override its delay."""
        if isinstance(error, str):
            error = TaskError(error)
        outcome = outcome_of(error, self.job, self.task)
        if isinstance(outcome, Failed) and backoff is not None:
            policy = self.task.options.retry
            first = timedelta(seconds=backoff)
            changed = replace(
                policy,
                first_delay=first,
                longest_delay=max(first, policy.longest_delay),
                jitter=policy.jitter if jitter is None else jitter,
            )
            delay = changed.delay(self.job.failures + 1, random=_random)
            outcome = Failed(outcome.error, delay, outcome.traceback)
        return outcome

    def will_retry(self, error: BaseException) -> bool:
        """Return whether the job would be tried again if this attempt failed with `error`."""
        is_last = self.job.failures + 1 >= self.job.max_attempts
        return not is_last and isinstance(self.failed(error), Failed)

    def _settle(self, tx: Any, outcome: Outcome) -> None:
        self._check(run_in(tx, self._settlement(outcome), clock=self._clock))
        if isinstance(self.task, AppTask):
            app_of(self.task).store.notifier.call_after_commit(tx, self._note_commit)

    def _note_commit(self) -> None:
        self.is_settled = True

    async def _settle_async(self, tx: Any, outcome: Outcome) -> None:
        self._check(await run_in_async(tx, self._settlement(outcome), clock=self._clock))

    def _settlement(self, outcome: Outcome) -> Operation[dict[Fence, bool]]:
        # Set before the statement runs, because only the caller's commit decides whether it takes effect.
        self.settled_in_transaction = True
        # A handler that repeats a transaction after a lost reply must not apply its effects again.
        return settle([Settlement.of(self.job, outcome)], ended_counts=False)

    def _check(self, held: dict[Fence, bool]) -> None:
        if not all(held.values()):
            self.settled_in_transaction = False  # so that the worker reports this even if the handler hides the error
            raise LeaseLost(self.job.id, self.job.attempt)


def current_job() -> JobContext:
    """Return the context of the running attempt, from anywhere below its handler."""
    context = _current.get()
    if context is None:
        raise TaskError("no job is running here: current_job() works only inside a task's handler.")
    return context


def enter(context: JobContext) -> None:
    """Make this attempt the current one, for `current_job()`, log records and the trace ids of enqueued jobs."""
    _current.set(context)
    identify(context.identity, context.trace)


def outcome_of(error: BaseException, job: LeasedJob, task: Task[..., Any]) -> Outcome:
    """Convert an exception that left a handler to the attempt's outcome."""
    policy = task.options.retry
    if isinstance(error, Cancelled):
        return Abandoned(str(error) or "cancelled by its handler")
    if isinstance(error, Snooze):
        return Snoozed(error.delay)
    message, traceback = describe_error(error)
    if not policy.is_retryable(error):
        return Refused(message, traceback)
    return Failed(message, policy.delay_after(error, job.failures + 1, random=_random), traceback)


def _nothing() -> None:
    return
