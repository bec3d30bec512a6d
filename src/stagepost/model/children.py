"""Children: jobs that a handler submits and that its own job waits for, and how they affect its outcome."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stagepost.model.batch import Counts
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import Cause, JobState

__all__ = ["DeferredOutcome", "NewChild", "OnChildFailed", "batch_key", "cause_of_children", "child_key", "summary_of"]


class OnChildFailed(StrEnum):
    """What children that did not complete do to their parent."""

    FINISH = "finish"
    """The parent ends completed_with_errors, or its continuation runs and decides."""
    FAIL = "fail"
    """The parent fails; its continuation does not run."""


class NewChild(msgspec.Struct, frozen=True):
    """A job to submit as a child, identified by a key or by its number in its parent's attempt."""

    job: NewJob
    key: str | None = None
    number: int = 0


class DeferredOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the last attempt of a job ended; it takes effect when the job's children have ended."""

    state: JobState = JobState.COMPLETED
    error: str | None = None
    on_child_failed: OnChildFailed = OnChildFailed.FINISH
    then: NewJob | None = None
    """The continuation to run instead of ending the job."""


def batch_key(job_id: str) -> str:
    """Return the key of the batch of a job's children; the batch's id is the job's id."""
    return f"job:{job_id}"


def child_key(child: NewChild, part: int) -> str:
    """Return a child's item key; a continuation (a later `part`) numbers its children from 0 again."""
    if child.key is not None:
        return child.key
    return f"{part}.{child.number}" if part else str(child.number)


def cause_of_children(ending: DeferredOutcome, counts: Counts, *, is_cancelled: bool) -> Cause:
    """Decide how a job whose children have all ended goes on."""
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
    """Summarize the children that did not complete; None if all completed."""
    parts = {
        "failed": counts.failures,
        "cancelled": counts.cancelled,
        "completed with errors": counts.completed_with_errors,
    }
    said = ", ".join(f"{number} {how}" for how, number in parts.items() if number)
    return f"of {counts.total} children {said}" if said else None
