"""Unique keys: taking them for a period, finding who holds them, and giving holders other arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from stagepost.database.capacity import in_pieces
from stagepost.database.statement import Statement, Statements, operation
from stagepost.model.job import JobRow, NewJob, OnConflict
from stagepost.model.lifecycle import JobState
from stagepost.store.counting import record_moves

__all__ = ["FreedKeys", "find_existing", "free_stale_keys", "hold_unique_key", "live_key", "update_existing"]

STATE = JobRow.__struct_fields__.index("state")
DEBOUNCED_TIMES = 10
"""How many times its delay a job waits at most that is debounced again and again, unless the request says otherwise."""


def live_key(job: NewJob) -> str | None:
    """The key that the job's own row holds; one for a period is held by a row of its own."""
    return job.unique_key if job.unique_for_us is None else None


def hold_unique_key(job: NewJob) -> Statements[str]:
    """Take the key for its period, or say who holds it."""
    key = {"unique_key": job.unique_key}
    rows = yield Statement("hold_unique_key", {**key, "id": job.id, "held_us": job.unique_for_us})
    if not rows:
        rows = yield Statement("unique_key_holder", key)
    if not rows:  # taken after the snapshot of a caller's transaction
        rows = yield Statement("unique_key_holder", {**key, "behind": 1})
    return str(rows[0][0])


def find_existing(jobs: Sequence[NewJob], freed: Collection[str]) -> Statements[dict[str, str]]:
    """Find who has their id or holds their unique key, at first without locks, which would keep it from ending.

    What is not found, or not as it is now, was changed after the snapshot of a caller's transaction.
    """
    found: dict[str, str] = {}
    for behind in ({}, {"behind": 1}):
        asked = [job for job in jobs if job.id not in found and (behind or job.id not in freed)]
        if asked:
            rows = [{"id": job.id, "unique_key": live_key(job)} for job in asked]
            for piece in (yield from in_pieces("find_enqueued", "jobs", rows)):
                holders = yield Statement("find_enqueued", {"jobs": piece.text, **behind})
                found |= {str(job_id): str(holder) for job_id, holder in holders}
    return found


def update_existing(jobs: Iterable[NewJob], existing: dict[str, str]) -> Statements[set[str]]:
    """Give holders the arguments of those that replace them; says whose holder has ended meanwhile."""
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
    """Tell a job that cannot be changed, because it runs or waits for its children, from one that has ended."""
    seen = yield Statement("live_job", {"id": job_id})
    if not seen or seen[0][STATE] in {JobState.RUNNING, JobState.WAITING}:
        return bool(seen)
    return bool(
        (yield Statement("lock_job", {"id": job_id}))
    )  # it changed after the snapshot of a caller's transaction


class FreedKeys(msgspec.Struct, frozen=True):
    """What became of one page of unique keys."""

    until: str | None
    """The last key of the page; None if there was none."""
    freed: int = 0


@operation
def free_stale_keys(*, after: str = "", most: int = 1000) -> Statements[FreedKeys]:
    """Delete unique keys whose live job is gone, among the `most` next ones.

    Only a database that keeps them in a table of their own has any, and only if somebody deleted jobs by hand.
    """
    page = yield Statement("last_live_key", {"after": after, "most": most})
    until = str(page[0][0]) if page else None
    freed = yield Statement("free_stale_keys", {"after": after, "until": until or after})
    return FreedKeys(until, len(freed))
