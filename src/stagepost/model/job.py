"""Jobs in their forms: requested, enqueued, leased and stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import overload

import msgspec

from stagepost.model.lifecycle import JobState

__all__ = [
    "DEFAULT_MAX_ATTEMPTS",
    "DEFAULT_QUEUE",
    "Enqueued",
    "FailureRecord",
    "JobRow",
    "LeasedJob",
    "NewJob",
    "OnConflict",
    "microseconds",
    "to_datetime",
    "to_instant",
]

DEFAULT_QUEUE = "default"
DEFAULT_MAX_ATTEMPTS = 5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OnConflict(StrEnum):
    """What an enqueue does if a live job already holds the same unique key."""

    KEEP = "keep"
    """Return the existing job unchanged."""
    REPLACE = "replace"
    """Give the existing job the new arguments, unless it is running."""
    DEBOUNCE = "debounce"
    """Like `replace`, and restart the delay, up to a longest wait."""


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request to run a task, checked and encoded but not stored yet."""

    id: str
    task_name: str
    payload: str
    queue_name: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    delay_us: int = 0
    available_at: int | None = None
    """An instant in microseconds since 1970; None means `delay_us` after the database's current time."""
    unique_key: str | None = None
    unique_for_us: int | None = None
    """How long the job holds its unique key, even after it has ended; None means until it ends."""
    on_conflict: OnConflict = OnConflict.KEEP
    longest_wait_us: int | None = None
    """Latest start of a debounced job, counted from the first request."""
    limit_key: str | None = None
    limit: int | None = None
    """Maximum number of jobs with the same `limit_key` that are under way at once; only remote tasks store one."""
    batch_id: str | None = None
    item_key: str | None = None
    """The item's key, which is unique in its batch."""
    context: str | None = None
    """JSON of the trace, correlation and user ids, and other data from the caller."""
    has_chosen_id: bool = False
    """Whether the caller chose the id, so that a job with this id may already exist."""


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The result of an enqueue: the job's id, and whether this request created the job."""

    id: str
    is_new: bool


class LeasedJob(msgspec.Struct, frozen=True, gc=False):
    """A job that its owner may run once; `id`, `attempt` and `owner` fence every later write."""

    id: str
    task_name: str
    queue_name: str
    attempt: int
    failures: int
    crashes: int
    max_attempts: int
    priority: int
    created_at: int
    available_at: int
    payload: str
    context: str | None
    limit_key: str | None
    batch_id: str | None
    owner: str
    blocked_on: str | None = None
    """The name that the job was blocked on before it was queued; None if it was not blocked."""
    starts_in_us: int = 0
    """How long after the claim its rate's token becomes valid; the job must not start earlier."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the store reads it; applications get a `Job`. Times are microseconds since 1970, UTC."""

    id: str
    task_name: str
    queue_name: str
    state: JobState
    priority: int
    attempt: int
    failures: int
    crashes: int
    max_attempts: int
    unique_key: str | None
    limit_key: str | None
    blocked_on: str | None = None
    """`limit:`, `rate:` or `task:` and a name: what it waits for while it is blocked."""
    batch_id: str | None
    item_key: str | None
    payload: str
    context: str | None
    available_at: int
    lease_until: int | None
    locked_by: str | None
    cancel_requested_at: int | None
    created_at: int
    updated_at: int
    started_at: int | None
    finished_at: int | None
    result: str | None
    error: str | None
    progress: str | None
    """JSON of the latest progress of the running attempt; None if there is none."""


class FailureRecord(msgspec.Struct, frozen=True):
    """The record of an attempt that did not complete its job."""

    attempt: int
    """The attempt's number."""
    kind: str
    """`failed`, `refused` or `crashed`."""
    error: str
    """The error's type and message."""
    traceback: str | None
    """Where the error was raised, if a handler raised it."""
    worker: str | None
    """Id of the worker that ran it."""
    failed_at: datetime
    """When it failed, in UTC."""


def microseconds(duration: timedelta | float) -> int:
    """Convert a duration (a timedelta, or seconds) to whole microseconds."""
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    return round(duration * 1_000_000)


def to_instant(time: datetime) -> int:
    """Convert an aware datetime to whole microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


@overload
def to_datetime(instant: int) -> datetime: ...


@overload
def to_datetime(instant: int | None) -> datetime | None: ...


def to_datetime(instant: int | None) -> datetime | None:
    """Convert a stored instant to an aware UTC datetime; None stays None."""
    return None if instant is None else EPOCH + timedelta(microseconds=instant)
