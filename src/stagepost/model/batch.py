"""Batches: jobs that are counted together; and gates, which are open while all their batches are done."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from stagepost.errors import ConfigurationError, shown
from stagepost.model.identity import VARIANT
from stagepost.model.job import NewJob, to_datetime, to_instant
from stagepost.model.lifecycle import FINAL, JobState

__all__ = [
    "BatchKind",
    "BatchRow",
    "BatchState",
    "Counts",
    "Cursor",
    "Item",
    "NewBatch",
    "OnFailed",
    "Progress",
    "StoredItem",
    "check_key",
    "id_range",
    "is_finished",
    "item_id",
    "new_item",
    "outcome_of",
    "progress_of",
    "summary_of",
]

FAILED = (JobState.FAILED, JobState.DEAD_LETTER)
NUMBER = re.compile(r"[0-9]+")
NEIGHBOURS = 128
"""Number of items with consecutive numbers that get neighbouring ids."""


class BatchState(StrEnum):
    """The stages in a batch's life."""

    OPEN = "open"
    SEALED = "sealed"
    DONE = "done"


class BatchKind(StrEnum):
    """What waits for a batch: only its gate, the job that submitted its items, or a run of a pipeline."""

    BATCH = "batch"
    CHILDREN = "children"
    STEP = "step"


class OnFailed(StrEnum):
    """What permanently failed items do to their batch."""

    FINISH = "finish"
    """They count as ended: the batch is done, with errors."""
    HOLD = "hold"
    """They keep the batch unfinished until each one is retried successfully or waived."""


class Cursor(msgspec.Struct, frozen=True):
    """A producer's position in its source: the number of stored items, and the key of the last one."""

    position: int = 0
    key: str | None = None


class Item(msgspec.Struct, frozen=True, gc=False):
    """A job of a batch, and its key, which is unique in the batch."""

    key: str
    job: NewJob

    def in_batch(self, batch_id: str) -> NewJob:
        """Return the job with the id that this key always gets in this batch."""
        job_id = item_id(batch_id, self.key)
        return msgspec.structs.replace(self.job, id=job_id, batch_id=batch_id, item_key=self.key)


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as declared in code; it is created on first use."""

    id: str
    key: str
    kind: BatchKind = BatchKind.BATCH
    gate: str | None = None
    on_failed: OnFailed = OnFailed.FINISH
    owner_id: str | None = None
    on_complete: str | None = None
    """JSON of the job to enqueue when the batch is done."""


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as the store reads it; applications get a `Batch`. Times are microseconds since 1970, UTC."""

    id: str
    key: str
    kind: BatchKind
    state: BatchState
    gate: str | None
    on_failed: OnFailed
    owner_id: str | None
    position: int
    cursor_key: str | None
    on_complete: str | None
    result: str | None
    """The return value of the job that submitted the items; it becomes that job's result when they have ended."""
    outcome: JobState | None
    cancelled_at: int | None
    created_at: int
    sealed_at: int | None
    done_at: int | None

    @property
    def cursor(self) -> Cursor:
        """The position where a producer continues."""
        return Cursor(self.position, self.cursor_key)


class Counts(msgspec.Struct, frozen=True):
    """The number of items in each state, all counted at one moment."""

    blocked: int = 0
    scheduled: int = 0
    queued: int = 0
    running: int = 0
    retrying: int = 0
    waiting: int = 0
    completed: int = 0
    completed_with_errors: int = 0
    failed: int = 0
    dead_letter: int = 0
    cancelled: int = 0
    waived: int = 0

    @property
    def total(self) -> int:
        """Number of all items."""
        return sum(getattr(self, state) for state in JobState)

    @property
    def ended(self) -> int:
        """Number of items in a final state."""
        return sum(getattr(self, state) for state in FINAL)

    @property
    def live(self) -> int:
        """Number of items that have not ended."""
        return self.total - self.ended

    @property
    def failures(self) -> int:
        """Number of items that failed permanently and are not waived."""
        return self.failed + self.dead_letter


class StoredItem(msgspec.Struct, frozen=True):
    """An item's current state and result."""

    key: str
    state: JobState
    result: Any
    """Its task's return value, decoded as the return type; None until it has completed."""
    error: str | None
    job_id: str


class Progress(msgspec.Struct, frozen=True):
    """A batch's progress and rate. More items may be added while the batch is open."""

    state: BatchState
    counts: Counts
    per_second: float
    """Items that ended per second, since the batch began or since an earlier progress."""
    eta: timedelta | None
    """Estimated time until the batch is done at this rate; None if it cannot be estimated."""
    at: datetime
    """The time of the measurement, in UTC."""

    @property
    def total(self) -> int:
        """Number of items added so far."""
        return self.counts.total

    @property
    def fraction(self) -> float:
        """The share of items that have ended, from 0.0 to 1.0."""
        return self.counts.ended / self.total if self.total else float(self.state is BatchState.DONE)


def progress_of(batch: BatchRow, counts: Counts, *, now: int, since: Progress | None = None) -> Progress:
    """Compute the rate since the batch began, or since an earlier progress, and the ETA."""
    began, before = (batch.created_at, 0) if since is None else (to_instant(since.at), since.counts.ended)
    at = now if batch.done_at is None else batch.done_at if since is None else max(batch.done_at, began)
    rate = max(0.0, (counts.ended - before) / (at - began) * 1_000_000) if at > began else 0.0
    is_known = batch.state is BatchState.SEALED and counts.live > 0 and rate > 0
    eta = timedelta(seconds=min(counts.live / rate, LONGEST_ETA_SECONDS)) if is_known else None
    return Progress(batch.state, counts, rate, eta, to_datetime(now))


LONGEST_ETA_SECONDS = 10.0 * 365 * 86_400
"""Larger values are meaningless, and a timedelta would overflow."""


def summary_of(state: BatchState, counts: Counts) -> str:
    """Summarize a batch's progress in a few words."""
    failed = f", {counts.failures:,} failed" if counts.failures else ""
    more = ", more may come" if state is BatchState.OPEN else ""
    return f"{counts.ended:,} of {counts.total:,} done{failed}{more}"


def new_item(key: str, job: NewJob) -> Item:
    """Create an item from a job; raises ConfigurationError for an invalid key or a job with a unique key."""
    check_key("item key", key)
    if job.unique_key is not None:
        raise ConfigurationError(
            f"item {key!r} has unique key {job.unique_key!r}. An item is unique by its own key: leave `unique_key` out."
        )
    return Item(key, job)


def check_key(what: str, key: str) -> None:
    """Refuse keys that some database cannot store, or that databases would compare differently."""
    if not isinstance(key, str):
        raise ConfigurationError(f"{what} is {shown(key)}, which is not a string. Convert it to str.")
    if not 1 <= len(key) <= 191:
        raise ConfigurationError(f"{what} {key[:50]!r} has {len(key):,} characters: it must have 1 to 191.")
    if key != key.strip():
        raise ConfigurationError(f"{what} {key!r} begins or ends with white space, which MySQL ignores. Strip it.")
    if "\0" in key or not (key.isascii() or _is_unicode(key)):
        raise ConfigurationError(f"{what} {key!r} has characters that some databases cannot store. Remove them.")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def item_id(batch_id: str, key: str) -> str:
    """Compute an item's id from its batch and key, so that adding the same item twice creates one job.

    The id is a UUIDv8 (RFC 9562) that begins with the timestamp of its batch's id. All items of a batch are therefore
    adjacent in every index of ids, and need no index of their own. The next digits come from the last number in the
    key: items with close numbers, which are usually added and ended together, share index pages, so a large batch
    touches as few pages at a time as a small one. The rest is a hash of the key, 62 bits.
    """
    digest = hashlib.blake2b(f"{batch_id}\0{key}".encode(), digest_size=10).hexdigest()
    numbers = NUMBER.findall(key)
    near = f"{int(numbers[-1]) // NEIGHBOURS % 0x1000:03x}" if numbers else digest[1:4]
    return f"{batch_id[:13]}-8{near}-{VARIANT[digest[0]]}{digest[4:7]}-{digest[7:19]}"


def id_range(batch_id: str) -> tuple[str, str]:
    """Return the first and last id that an item of this batch can have."""
    return f"{batch_id[:13]}-0000-0000-000000000000", f"{batch_id[:13]}-ffff-ffff-ffffffffffff"


def is_finished(state: BatchState, counts: Counts, on_failed: OnFailed, *, is_cancelled: bool = False) -> bool:
    """Return whether no more items will be added and no item will change its state."""
    holds = on_failed is OnFailed.HOLD and counts.failures > 0 and not is_cancelled
    return state is BatchState.SEALED and counts.live == 0 and not holds


def outcome_of(counts: Counts, *, is_cancelled: bool) -> JobState:
    """Derive the outcome of a finished batch from its items, as one job state."""
    if is_cancelled:
        return JobState.CANCELLED
    if not counts.failures and not counts.completed_with_errors and not counts.cancelled:
        return JobState.COMPLETED
    successes = counts.completed + counts.completed_with_errors + counts.waived
    return JobState.COMPLETED_WITH_ERRORS if successes else JobState.FAILED
