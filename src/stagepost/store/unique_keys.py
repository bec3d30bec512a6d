"""Unique keys: take one for a period, find the job that holds one, replace that job's arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from stagepost.database.statement import Statement, Statements, operation
from stagepost.model.job import JobRow, NewJob, OnConflict
from stagepost.model.lifecycle import JobState
from stagepost.store.counting import record_moves

__all__ = ["FreedKeys", "find_existing", "free_stale_keys", "hold_unique_key", "live_key", "update_existing"]

STATE = JobRow.__struct_fields__.index("state")
DEBOUNCED_TIMES = 10
"""The longest wait of a job that is debounced repeatedly, as a multiple of its delay, unless the request sets one."""


def live_key(job: NewJob) -> str | None:
    """The unique key stored in the job's row; None for a key with a period, which has a row of its own."""
    return job.unique_key if job.unique_for_us is None else None


def hold_unique_key(job: NewJob) -> Statements[str]:
    """Take a unique key for its period, and return the id of the job that holds it now."""
    key = {"unique_key": job.unique_key}
    rows = yield Statement("hold_unique_key", {**key, "id": job.id, "held_us": job.unique_for_us})
    if not rows:
        rows = yield Statement("unique_key_holder", key)
    if not rows:  # taken after the snapshot of a caller's transaction
        rows = yield Statement("unique_key_holder", {**key, "behind": 1})
    return str(rows[0][0])


def find_existing(jobs: Sequence[NewJob], freed: Collection[str]) -> Statements[dict[str, str]]:
    """Find the jobs that have the id or hold the unique key of these, by the id of the request.

    The first look takes no locks, which would keep the holder from ending. Only jobs that it misses, or that are in
    `freed`, are looked up with locks: they are newer than the snapshot of a caller's transaction.
    """
    found: dict[str, str] = {}
    for behind in ({}, {"behind": 1}):
        asked = [job for job in jobs if job.id not in found and (behind or job.id not in freed)]
        if asked:
            rows = [{"id": job.id, "unique_key": live_key(job)} for job in asked]
            holders = yield Statement("find_enqueued", {"jobs": rows, **behind}, split="jobs")
            found |= {str(job_id): str(holder) for job_id, holder in holders}
    return found


def update_existing(jobs: Iterable[NewJob], existing: dict[str, str]) -> Statements[set[str]]:
    """Replace holders' arguments as `on_conflict` demands, and return the requests whose holder has ended meanwhile."""
    freed: set[str] = set()
    for job in jobs:
        holder = existing.get(job.id)
        if holder is None or holder == job.id or job.on_conflict is OnConflict.KEEP:
            continue
        delay_us = job.delay_us if job.on_conflict is OnConflict.DEBOUNCE else 0
        rows = yield Statement(
            "replace_arguments",
            {
                "id": holder,
                "payload": job.payload,
                "context": job.context,
                "delay_us": delay_us,
                "longest_us": DEBOUNCED_TIMES * delay_us if job.longest_wait_us is None else job.longest_wait_us,
            },
        )
        if delay_us > 0:
            yield from record_moves((*row, JobState.SCHEDULED) for row in rows)
        if not rows and not (yield from _is_running(holder)):
            freed.add(job.id)
    return freed


def _is_running(job_id: str) -> Statements[bool]:
    """Whether a job still exists but cannot be changed, because it is running or waiting for its children."""
    seen = yield Statement("live_job", {"id": job_id})
    if not seen or seen[0][STATE] in {JobState.RUNNING, JobState.WAITING}:
        return bool(seen)
    return bool(
        (yield Statement("lock_job", {"id": job_id}))
    )  # it changed after the snapshot of a caller's transaction


class FreedKeys(msgspec.Struct, frozen=True):
    """The result of checking one page of unique keys."""

    until: str | None
    """The last key of the page; None if the page was empty."""
    freed: int = 0


@operation
def free_stale_keys(*, after: str = "", most: int = 1000) -> Statements[FreedKeys]:
    """Delete unique keys that belong to no live job, among the next `most` keys.

    Such keys exist only on a database that keeps keys in a separate table, and only after jobs were deleted by hand.
    """
    page = yield Statement("last_live_key", {"after": after, "most": most})
    until = str(page[0][0]) if page else None
    freed = yield Statement("free_stale_keys", {"after": after, "until": until or after})
    return FreedKeys(until, len(freed))
