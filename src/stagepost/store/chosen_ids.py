"""Checks of ids that callers choose: a request may only find an existing job that is the same job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from stagepost.database.capacity import in_pieces
from stagepost.database.statement import Statement, Statements
from stagepost.errors import JobDiffers
from stagepost.model.job import NewJob

__all__ = ["refuse_ambiguous", "refuse_others"]


def refuse_ambiguous(jobs: Iterable[NewJob]) -> None:
    """Raise JobDiffers if one request uses the same chosen id for different jobs."""
    seen: dict[str, NewJob] = {}
    for job in jobs:
        if job.has_chosen_id and not _is_same(job, (other := seen.setdefault(job.id, job)).task_name, other.payload):
            raise JobDiffers(job.id, job.task_name, other.task_name)


def refuse_others(jobs: Sequence[NewJob]) -> Statements[None]:
    """Raise JobDiffers if an id belongs to a job, live or ended, of another task or with other arguments.

    Jobs whose arguments Stagepost itself may have replaced are not compared: those with a unique key, and those with
    children, which may have continued as another task.
    """
    asked = {job.id: job for job in jobs if job.unique_key is None}
    found: dict[str, tuple[str, str]] = {}
    for behind in ({}, {"behind": 1}):  # then those newer than the snapshot of a caller's transaction
        if ids := sorted(asked.keys() - found.keys()):
            for piece in (yield from in_pieces("requests_of_jobs", "ids", ids)):
                rows = yield Statement("requests_of_jobs", {"ids": piece.text, **behind})
                found |= {str(job_id): (task_name, payload) for job_id, task_name, payload in rows}
    for job_id, (task_name, payload) in found.items():
        if _is_same(asked[job_id], task_name, payload) or (yield Statement("batch_of_id", {"id": job_id})):
            continue
        raise JobDiffers(job_id, asked[job_id].task_name, task_name)


def _is_same(job: NewJob, task_name: str, payload: str) -> bool:
    if job.task_name != task_name:
        return False
    return job.payload == payload or msgspec.json.decode(job.payload) == msgspec.json.decode(payload)
