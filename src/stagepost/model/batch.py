"""Batches: jobs that are counted together; and gates, open while no batch under them is unfinished."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec

from stagepost.errors import ConfigurationError
from stagepost.model.identity import VARIANT
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import FINAL, JobState

__all__ = [
    "Batch",
    "BatchKind",
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
"""How many items with consecutive numbers lie together."""


class BatchState(StrEnum):
    """Where a batch is in its life."""

    OPEN = "open"
    SEALED = "sealed"
    DONE = "done"


class BatchKind(StrEnum):
    """Who waits for a batch: nobody but its gate, the job that submitted its items, or a run of a pipeline."""

    BATCH = "batch"
    CHILDREN = "children"
    STEP = "step"


class OnFailed(StrEnum):
    """What items that failed for good do to their batch."""

    FINISH = "finish"
    """They count as ended: the batch is done, with errors."""
    HOLD = "hold"
    """They keep the batch unfinished until each is retried with success, or waived."""


class Cursor(msgspec.Struct, frozen=True):
    """How far a producer got: how many items of its source are in, and the key of the last."""

    position: int = 0
    key: str | None = None


class Item(msgspec.Struct, frozen=True, gc=False):
    """A job of a batch, and the key that makes it one of a kind there."""

    key: str
    job: NewJob

    def in_batch(self, batch_id: str) -> NewJob:
        """The job under the id that this key always gets in this batch."""
        job_id = item_id(batch_id, self.key)
        return msgspec.structs.replace(self.job, id=job_id, batch_id=batch_id, item_key=self.key)


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as code declares it; the first to use it makes it."""

    id: str
    key: str
    kind: BatchKind = BatchKind.BATCH
    gate: str | None = None
    on_failed: OnFailed = OnFailed.FINISH
    owner_id: str | None = None
    on_complete: str | None = None
    """JSON of the job to enqueue when the batch is done."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as it is now. Times are microseconds since 1970, UTC."""

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
    """What the job that submitted the items returned; it becomes the job's result when they have ended."""
    outcome: JobState | None
    cancelled_at: int | None
    created_at: int
    sealed_at: int | None
    done_at: int | None

    @property
    def cursor(self) -> Cursor:
        """Where a producer goes on."""
        return Cursor(self.position, self.cursor_key)


class Counts(msgspec.Struct, frozen=True):
    """How many items a batch has in each state, all at one moment."""

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
        """All items."""
        return sum(getattr(self, state) for state in JobState)

    @property
    def ended(self) -> int:
        """Those that will not change unless somebody asks for it."""
        return sum(getattr(self, state) for state in FINAL)

    @property
    def live(self) -> int:
        """Those that have not ended."""
        return self.total - self.ended

    @property
    def failures(self) -> int:
        """Those that failed for good and are not waived."""
        return self.failed + self.dead_letter


class StoredItem(msgspec.Struct, frozen=True):
    """An item as it is now."""

    key: str
    state: JobState
    result: Any
    """What its task returned, as its return type; None until it has completed."""
    error: str | None
    job_id: str


class Progress(msgspec.Struct, frozen=True):
    """How far a batch is, and how fast it goes. While it is open more items may come."""

    state: BatchState
    counts: Counts
    per_second: float
    """Items that ended per second: since it began, or since the progress it is compared with."""
    eta: timedelta | None
    """How long it will take at this rate; None if nobody can know."""
    at: int
    """When this was, in microseconds since 1970, UTC."""

    @property
    def total(self) -> int:
        """All items that are in."""
        return self.counts.total

    @property
    def fraction(self) -> float:
        """How much of it has ended, from 0.0 to 1.0."""
        return self.counts.ended / self.total if self.total else float(self.state is BatchState.DONE)


def progress_of(batch: Batch, counts: Counts, *, now: int, since: Progress | None = None) -> Progress:
    """Take the rate over the batch's life, or since an earlier look at it; work out when it will be done."""
    began, before = (batch.created_at, 0) if since is None else (since.at, since.counts.ended)
    at = now if batch.done_at is None else batch.done_at if since is None else max(batch.done_at, began)
    rate = max(0.0, (counts.ended - before) / (at - began) * 1_000_000) if at > began else 0.0
    is_known = batch.state is BatchState.SEALED and counts.live > 0 and rate > 0
    eta = timedelta(seconds=min(counts.live / rate, LONGEST_ETA_SECONDS)) if is_known else None
    return Progress(batch.state, counts, rate, eta, now)


LONGEST_ETA_SECONDS = 10.0 * 365 * 86_400
"""Beyond that it makes no difference, and a timedelta overflows."""


def summary_of(state: BatchState, counts: Counts) -> str:
    """Say in a few words how far a batch is."""
    failed = f", {counts.failures:,} failed" if counts.failures else ""
    more = ", more may come" if state is BatchState.OPEN else ""
    return f"{counts.ended:,} of {counts.total:,} done{failed}{more}"


def new_item(key: str, job: NewJob) -> Item:
    """Make an item of a job; a key or a job that cannot be one is a clear error."""
    check_key("item key", key)
    if job.unique_key is not None:
        raise ConfigurationError(
            f"item {key!r} has the unique key {job.unique_key!r}. An item is unique by its own key: leave that out."
        )
    return Item(key, job)


def check_key(what: str, key: str) -> None:
    """Refuse what no database can keep as a key, or two of them would keep differently."""
    if not isinstance(key, str):
        raise ConfigurationError(f"{what} {key!r} is no text: write it as a str.")
    if not 1 <= len(key) <= 191:
        raise ConfigurationError(f"{what} {key[:50]!r} has {len(key):,} characters: 1 to 191 are possible.")
    if key != key.strip():
        raise ConfigurationError(f"{what} {key!r} begins or ends with white space, which MySQL ignores. Strip it.")
    if "\0" in key or not (key.isascii() or _is_unicode(key)):
        raise ConfigurationError(f"{what} {key!r} has characters that no database keeps. Write it otherwise.")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def item_id(batch_id: str, key: str) -> str:
    """The id that an item always has: the same item twice is one job.

    A UUIDv8 (RFC 9562) that begins with the instant of its batch's id, so that all items of a batch lie together in
    every index of ids, and are found there without an index of their own. Then come keys whose last numbers are near
    to each other: what is added or ended together lies together, too, and a large batch touches as few pages as a
    small one. The rest is a hash of the key, 62 bits.
    """
    digest = hashlib.blake2b(f"{batch_id}\0{key}".encode(), digest_size=10).hexdigest()
    numbers = NUMBER.findall(key)
    near = f"{int(numbers[-1]) // NEIGHBOURS % 0x1000:03x}" if numbers else digest[1:4]
    return f"{batch_id[:13]}-8{near}-{VARIANT[digest[0]]}{digest[4:7]}-{digest[7:19]}"


def id_range(batch_id: str) -> tuple[str, str]:
    """The first and the last id that an item of this batch can have."""
    return f"{batch_id[:13]}-0000-0000-000000000000", f"{batch_id[:13]}-ffff-ffff-ffffffffffff"


def is_finished(state: BatchState, counts: Counts, on_failed: OnFailed, *, is_cancelled: bool = False) -> bool:
    """Say whether nothing more is to come: no items, and no change of those there are."""
    holds = on_failed is OnFailed.HOLD and counts.failures > 0 and not is_cancelled
    return state is BatchState.SEALED and counts.live == 0 and not holds


def outcome_of(counts: Counts, *, is_cancelled: bool) -> JobState:
    """Sum up how the items of a finished batch ended, in the words for one job."""
    if is_cancelled:
        return JobState.CANCELLED
    if not counts.failures and not counts.completed_with_errors and not counts.cancelled:
        return JobState.COMPLETED
    successes = counts.completed + counts.completed_with_errors + counts.waived
    return JobState.COMPLETED_WITH_ERRORS if successes else JobState.FAILED
