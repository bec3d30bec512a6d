"""What the client returns about stored jobs and batches: times as datetimes, JSON as objects."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from stagepost.model.batch import BatchRow, BatchState, Cursor, OnFailed
from stagepost.model.context import FirstRequest, ScheduleOrigin, TraceContext
from stagepost.model.job import JobRow, NewJob, to_datetime
from stagepost.model.lifecycle import JobState
from stagepost.model.payload import decode_plainly
from stagepost.model.results import decode_progress, decode_result

__all__ = ["Batch", "Job", "batch_of"]


class Job:
    """The state of a job, live or ended, when it was read. Times are aware datetimes in UTC.

    Its JSON is decoded when it is first used, so a long list of jobs costs little.
    """

    def __init__(self, row: JobRow) -> None:
        self._row = row

    def __repr__(self) -> str:
        return f"Job({self.id!r}, task={self.task!r}, state={str(self.state)!r})"

    def __eq__(self, other: object) -> bool:
        return self._row == other._row if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._row.id)

    @property
    def id(self) -> str:
        """Its id, a UUID."""
        return self._row.id

    @property
    def task(self) -> str:
        """Name of its task."""
        return self._row.task_name

    @property
    def queue(self) -> str:
        """Name of its queue."""
        return self._row.queue_name

    @property
    def state(self) -> JobState:
        """Its state."""
        return self._row.state

    @property
    def priority(self) -> int:
        """Jobs with a larger priority run first."""
        return self._row.priority

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """Its arguments by parameter name, as plain JSON values."""
        return decode_plainly(self._row.payload)

    @cached_property
    def first_task(self) -> str:
        """Name of the task that it was enqueued as; another than `task` after it continued with `job.then`."""
        return FirstRequest.decode(self._row.context).first_task or self._row.task_name

    @cached_property
    def first_arguments(self) -> Mapping[str, Any]:
        """The arguments that it was enqueued with, by parameter name, as plain JSON values."""
        first = FirstRequest.decode(self._row.context)
        return self.arguments if first.first_task is None else decode_plainly(bytes(first.first_arguments).decode())

    @cached_property
    def result(self) -> Any:
        """Its result as plain JSON values, None unless it completed; `client.result` decodes the task's return type."""
        return decode_result(self._row.result, Any)

    @property
    def error(self) -> str | None:
        """The latest error, if an attempt failed."""
        return self._row.error

    @cached_property
    def progress(self) -> Any:
        """The latest progress of the running attempt, as plain JSON values; None if there is none."""
        return decode_progress(self._row.progress, Any)

    @cached_property
    def trace(self) -> TraceContext:
        """Trace, correlation and user ids, and the job whose handler enqueued it."""
        return TraceContext.decode(self._row.context)

    @cached_property
    def schedule(self) -> str | None:
        """Name of the schedule that enqueued it; None if no schedule did."""
        return ScheduleOrigin.decode(self._row.context).schedule

    @cached_property
    def due_at(self) -> datetime | None:
        """The due time of that schedule."""
        return to_datetime(ScheduleOrigin.decode(self._row.context).due_at)

    @property
    def attempt(self) -> int:
        """Number of the latest attempt; 0 before the first."""
        return self._row.attempt

    @property
    def failures(self) -> int:
        """Number of failed attempts since it was enqueued or retried by an operator."""
        return self._row.failures

    @property
    def crashes(self) -> int:
        """Number of attempts whose worker died."""
        return self._row.crashes

    @property
    def max_attempts(self) -> int:
        """Number of failures after which it becomes a dead letter."""
        return self._row.max_attempts

    @property
    def unique_key(self) -> str | None:
        """Its unique key, if it has one."""
        return self._row.unique_key

    @property
    def limit_key(self) -> str | None:
        """Jobs with the same key share one `max_running`."""
        return self._row.limit_key

    @property
    def blocked_on(self) -> str | None:
        """`limit:`, `rate:` or `task:` and a name: what a blocked job waits for."""
        return self._row.blocked_on if self.state is JobState.BLOCKED else None

    @property
    def batch_id(self) -> str | None:
        """Id of its batch, of the job that submitted it, or of its step's jobs."""
        return self._row.batch_id

    @property
    def item_key(self) -> str | None:
        """Its key in the batch."""
        return self._row.item_key

    @property
    def worker(self) -> str | None:
        """Id of the worker that runs it, or ran it last."""
        return self._row.locked_by

    @cached_property
    def created_at(self) -> datetime:
        """When it was enqueued."""
        return to_datetime(self._row.created_at)

    @cached_property
    def available_at(self) -> datetime:
        """When it is or was due."""
        return to_datetime(self._row.available_at)

    @cached_property
    def started_at(self) -> datetime | None:
        """When its latest attempt started."""
        return to_datetime(self._row.started_at)

    @cached_property
    def lease_until(self) -> datetime | None:
        """When its lease ends, unless its worker renews it."""
        return to_datetime(self._row.lease_until)

    @cached_property
    def cancel_requested_at(self) -> datetime | None:
        """When it was asked to stop."""
        return to_datetime(self._row.cancel_requested_at)

    @cached_property
    def updated_at(self) -> datetime:
        """When its state last changed."""
        return to_datetime(self._row.updated_at)

    @cached_property
    def finished_at(self) -> datetime | None:
        """When it ended."""
        return to_datetime(self._row.finished_at)

    def copy(self) -> NewJob:
        """Build a request for the same job, with the same id and due time, to enqueue it in another database.

        Batch, parent and limit key are left out.
        """
        row = self._row
        return NewJob(
            id=row.id,
            task_name=row.task_name,
            payload=row.payload,
            queue_name=row.queue_name,
            priority=row.priority,
            max_attempts=row.max_attempts,
            available_at=row.available_at,
            unique_key=row.unique_key,
            context=row.context,
            has_chosen_id=True,
        )


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a batch when it was read. Times are aware datetimes in UTC."""

    id: str
    """Its id, a UUID."""
    key: str
    """Its key."""
    state: BatchState
    """Whether it is open, sealed or done."""
    outcome: JobState | None
    """How it ended: completed, completed_with_errors, failed or cancelled; None until it is done."""
    gate: str | None
    """Name of its gate."""
    on_failed: OnFailed
    """What failed items do to it."""
    cursor: Cursor
    """The position where a producer continues."""
    created_at: datetime
    """When it was stored."""
    sealed_at: datetime | None
    """When it was sealed."""
    done_at: datetime | None
    """When it was done."""
    cancelled_at: datetime | None
    """When it was cancelled."""


def batch_of(row: BatchRow) -> Batch:
    """Build the public record of a batch."""
    return Batch(
        id=row.id,
        key=row.key,
        state=row.state,
        outcome=row.outcome,
        gate=row.gate,
        on_failed=row.on_failed,
        cursor=row.cursor,
        created_at=to_datetime(row.created_at),
        sealed_at=to_datetime(row.sealed_at),
        done_at=to_datetime(row.done_at),
        cancelled_at=to_datetime(row.cancelled_at),
    )
