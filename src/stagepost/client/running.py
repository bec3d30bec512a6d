"""One attempt while its handler runs: what the worker and the handler's context share about it."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

from msgspec.structs import replace as replace_fields

from stagepost.client.tasks import AppTask, app_of
from stagepost.clock import Clock, monotonic
from stagepost.database.connection import Database
from stagepost.database.statement import Operation
from stagepost.database.transaction import run_in, run_in_async
from stagepost.errors import Cancelled, LeaseLost, PayloadError, Snooze, TaskError, duration_of
from stagepost.model.children import DeferredOutcome, OnChildFailed
from stagepost.model.context import JobIdentity, TraceContext
from stagepost.model.job import LeasedJob, NewJob
from stagepost.model.outcome import Abandoned, Completed, Failed, Outcome, Refused, Snoozed
from stagepost.model.results import encode_result
from stagepost.model.retry import describe_error
from stagepost.model.tracebacks import begin_in_handler
from stagepost.store.settlement import Fence, Settlement
from stagepost.store.settling import settle as settle_all
from stagepost.task import Task

__all__ = ["RunningAttempt", "outcome_of"]

_random = random.Random()  # noqa: S311 - spreads retries


class RunningAttempt:
    """The worker's side of a `JobContext`: the leased job, and what the handler has done so far."""

    # Defaults of the class, because most attempts never need another value of their own.
    settlement: Settlement | None = None
    """How the handler has ended the attempt in a transaction, which may or may not have committed; no result."""
    error: BaseException | None = None
    """What the handler raised, until it is logged."""
    ended_at: float | None = None
    """When the handler returned, on the local monotonic clock."""

    def __init__(self, job: LeasedJob, task: Task[..., Any], clock: Clock) -> None:
        self.job = job
        self.task = task
        self.trace = TraceContext.decode(job.context)
        self.is_settled = False
        """The transaction in which the handler ended the attempt has committed."""
        self.identity = JobIdentity(job.id, job.task_name, job.attempt, job.queue_name)
        """What logs show of it, and what its handler is waiting for while it holds its slot."""
        self.numbers = count()
        """Numbers the children that this attempt submits without keys."""
        self.reported: str | None = None
        """The latest progress, encoded; the lease keeper writes it to the database."""
        self.on_report: Callable[[], None] = _nothing
        """Called when there is new progress, in the thread that reports it."""
        self.stop_reason: str | None = None
        """Why the handler should stop; None if it should not."""
        self.then: NewJob | None = None
        """The job that continues this one when its children have ended."""
        self._clock = clock
        self._started_at = monotonic()

    @property
    def seconds(self) -> float:
        """How long the attempt took, or has taken so far."""
        return (self.ended_at or monotonic()) - self._started_at

    @property
    def is_cancelled(self) -> bool:
        """Whether the handler should stop."""
        return self.stop_reason is not None

    def request_stop(self, reason: str) -> None:
        """Ask the handler to stop; the first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def completed(self, result: Any) -> Completed:
        """Encode a result as the task's return type."""
        if result is not None and inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()  # otherwise Python warns that it was never awaited
            raise PayloadError(
                f"task {self.task.name} returned a coroutine, which nothing awaits. Declare it as `async def`; "
                f"if it has a decorator, the wrapper must be `async def` too."
            )
        options, annotation = self.task.options, self.task.signature.result_annotation
        if result is None and (self.then is not None or self.settlement is not None):
            annotation = None  # the continuation gives the result, or the transaction gave it
        try:
            encoded = encode_result(result, annotation=annotation, limits=options.limits)
        except PayloadError as error:
            error.args = (f"task {self.task.name}: {error}",)
            raise
        if self.then is None and options.on_child_failed == OnChildFailed.FINISH:
            return Completed(encoded)
        return Completed(
            encoded, DeferredOutcome(on_child_failed=OnChildFailed(options.on_child_failed), then=self.then)
        )

    def raised(self, error: BaseException) -> Outcome:
        """Convert an exception that left the handler, and keep it for the log."""
        self.error = error
        return outcome_of(error, self.job, self.task)

    def failed(
        self, error: BaseException | str, *, backoff: timedelta | float | None = None, jitter: float | None = None
    ) -> Outcome:
        """Classify an error by the task's policy; `backoff` and `jitter` (a fraction) override its delay."""
        if isinstance(error, str):
            error = TaskError(error)
        outcome = outcome_of(error, self.job, self.task)
        if isinstance(outcome, Failed) and backoff is not None:
            policy = self.task.options.retry
            first = duration_of(backoff, "backoff")
            changed = replace(
                policy,
                first_delay=first,
                longest_delay=max(first, duration_of(policy.longest_delay, "longest_delay")),
                jitter=policy.jitter if jitter is None else jitter,
            )
            delay = changed.delay(self.job.failures + 1, random=_random)
            outcome = Failed(outcome.error, delay, outcome.traceback)
        return outcome

    def settle(self, tx: Any, outcome: Outcome) -> None:
        """End the attempt in the caller's transaction; raises LeaseLost if another attempt has taken over."""
        self._check(run_in(tx, self._settlement(outcome), clock=self._clock, database=self._database))
        self._observe_commit(tx)

    async def settle_async(self, tx: Any, outcome: Outcome) -> None:
        """End the attempt in the caller's async transaction."""
        self._check(await run_in_async(tx, self._settlement(outcome), clock=self._clock, database=self._database))
        self._observe_commit(tx)

    @property
    def _database(self) -> Database | None:
        return app_of(self.task).store.callers_database if isinstance(self.task, AppTask) else None

    def _observe_commit(self, tx: Any) -> None:
        if isinstance(self.task, AppTask):
            app_of(self.task).store.notifier.call_after_commit(tx, self._note_commit)

    def _note_commit(self) -> None:
        self.is_settled = True

    def _settlement(self, outcome: Outcome) -> Operation[dict[Fence, bool]]:
        settlement = Settlement.of(self.job, outcome)
        # Set before the statement runs, because only the caller's commit decides whether it takes effect.
        self.settlement = replace_fields(settlement, result=None, ending=None)
        # A handler that repeats a transaction after a lost reply must not apply its effects again.
        return settle_all([settlement], ended_counts=False)

    def _check(self, held: dict[Fence, bool]) -> None:
        if not all(held.values()):
            self.settlement = None  # so that the worker reports this even if the handler hides the error
            raise LeaseLost(self.job.id, self.job.attempt)


def outcome_of(error: BaseException, job: LeasedJob, task: Task[..., Any]) -> Outcome:
    """Convert an exception that left a handler to the attempt's outcome."""
    policy = task.options.retry
    if isinstance(error, Cancelled):
        return Abandoned(str(error) or "cancelled by its handler")
    if isinstance(error, Snooze):
        return Snoozed(error.delay)
    begin_in_handler(error, home=task.function.__module__)
    message, traceback = describe_error(error)
    if not policy.is_retryable(error):
        return Refused(message, traceback)
    return Failed(message, policy.delay_after(error, job.failures + 1, random=_random), traceback)


def _nothing() -> None:
    return
