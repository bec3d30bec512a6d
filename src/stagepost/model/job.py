"""Jobs as they are asked for, leased and looked at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from stagepost.model.lifecycle import JobState

__all__ = [
    "DEFAULT_MAX_ATTEMPTS",
    "DEFAULT_QUEUE",
    "Enqueued",
    "FailureRecord",
    "Job",
    "LeasedJob",
    "NewJob",
    "OnConflict",
    "microseconds",
    "to_datetime",
]

DEFAULT_QUEUE = "default"
DEFAULT_MAX_ATTEMPTS = 5


class OnConflict(StrEnum):
    """What enqueueing does when a live job holds the same unique key."""

    KEEP = "keep"
    """Return the job that exists, unchanged."""
    REPLACE = "replace"
    """Give the job that exists these arguments, unless it is running."""
    DEBOUNCE = "debounce"
    """As `replace`, and start its delay again, up to a longest wait."""


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request to run a task, checked and encoded, not stored yet."""

    id: str
    task_name: str
    payload: str
    queue_name: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    delay_us: int = 0
    available_at: int | None = None
    """An instant in microseconds since 1970; None counts `delay_us` from the database's now."""
    unique_key: str | None = None
    unique_for_us: int | None = None
    """None holds the unique key while the job lives; otherwise for this long, alive or ended."""
    on_conflict: OnConflict = OnConflict.KEEP
    longest_wait_us: int | None = None
    """How long after the first request a job starts at the latest, however often it is debounced."""
    limit_key: str | None = None
    limit: int | None = None
    """How many jobs of one `limit_key` may be on their way at once; only of remote tasks, for claims check others."""
    batch_id: str | None = None
    item_key: str | None = None
    """What makes it one of a kind in its batch."""
    context: str | None = None
    """JSON: trace, correlation and user ids, and whatever the caller attaches."""
    has_chosen_id: bool = False
    """Its id is one that somebody may have asked for before."""


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """What became of a request: the job's id, and whether this request made it."""

    id: str
    is_new: bool


class LeasedJob(msgspec.Struct, frozen=True, gc=False):
    """A job this owner may run once; `id`, `attempt` and `owner` fence every later write."""

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
    """What it was blocked on before it was let through, if it was."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is now, live or ended. Times are microseconds since 1970, UTC."""

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
    """JSON of what its attempt reported last; None while there is none under way."""


class FailureRecord(msgspec.Struct, frozen=True):
    """One attempt that did not complete its job."""

    attempt: int
    kind: str
    """`failed`, `refused` or `crashed`."""
    error: str
    traceback: str | None
    owner: str | None
    failed_at: int


def microseconds(duration: timedelta | float) -> int:
    """Turn a duration (a timedelta, or seconds) into whole microseconds."""
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    return round(duration * 1_000_000)


def to_datetime(instant: int) -> datetime:
    """Turn a stored instant into an aware UTC datetime."""
    return datetime.fromtimestamp(instant / 1_000_000, UTC)
