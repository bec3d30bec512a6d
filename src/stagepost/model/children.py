"""Children: jobs that a handler submits, and for which its own job waits; and what that makes of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stagepost.model.batch import Counts
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import Cause, JobState

__all__ = ["Ending", "NewChild", "OnChildFailed", "batch_key", "cause_of_children", "child_key", "summary_of"]


class OnChildFailed(StrEnum):
    """What children that did not complete do to their parent."""

    FINISH = "finish"
    """The parent ends completed_with_errors, or its continuation runs and decides."""
    FAIL = "fail"
    """The parent fails; its continuation does not run."""


class NewChild(msgspec.Struct, frozen=True):
    """A job to be submitted as a child: under a key, or by its number among those its parent's attempt submits."""

    job: NewJob
    key: str | None = None
    number: int = 0


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the last attempt of a job made of it; it takes effect when its children have ended."""

    state: JobState = JobState.COMPLETED
    error: str | None = None
    on_child_failed: OnChildFailed = OnChildFailed.FINISH
    then: NewJob | None = None
    """What the job goes on with instead of ending."""


def batch_key(job_id: str) -> str:
    """The key of the batch that holds a job's children; its id is the job's."""
    return f"job:{job_id}"


def child_key(child: NewChild, part: int) -> str:
    """The key that a child has among its parent's: a continuation counts its own from 0, as the handler before did."""
    if child.key is not None:
        return child.key
    return f"{part}.{child.number}" if part else str(child.number)


def cause_of_children(ending: Ending, counts: Counts, *, is_cancelled: bool) -> Cause:
    """Say what becomes of a job whose children have all ended."""
    if ending.state is JobState.FAILED:
        return Cause.REFUSE
    if ending.state is JobState.DEAD_LETTER:
        return Cause.EXHAUST
    if ending.state is JobState.CANCELLED or is_cancelled:
        return Cause.CANCEL
    if ending.on_child_failed is OnChildFailed.FAIL and counts.failures + counts.cancelled:
        return Cause.REFUSE
    if ending.then is not None:
        return Cause.RESUME
    return Cause.COMPLETE_WITH_ERRORS if summary_of(counts) else Cause.COMPLETE


def summary_of(counts: Counts) -> str | None:
    """Count the children that did not complete, for people; None if all did."""
    parts = {
        "failed": counts.failures,
        "cancelled": counts.cancelled,
        "completed with errors": counts.completed_with_errors,
    }
    said = ", ".join(f"{number} {how}" for how, number in parts.items() if number)
    return f"of {counts.total} children {said}" if said else None
