"""A job's history as a list of readable events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from stagepost.model.job import FailureRecord, Job
from stagepost.model.lifecycle import FINAL, JobState

__all__ = ["Action", "Moment", "timeline_of"]

DUE_LATER = frozenset({JobState.SCHEDULED, JobState.RETRYING})


class Action(msgspec.Struct, frozen=True):
    """A recorded action of an operator."""

    actor: str
    action: str
    detail: str | None
    acted_at: int


class Moment(msgspec.Struct, frozen=True):
    """One event of a timeline; `at` is in microseconds since 1970."""

    at: int
    what: str
    detail: str | None = None


def timeline_of(job: Job, failures: Sequence[FailureRecord], actions: Sequence[Action]) -> list[Moment]:
    """Order all known events of a job by time; future events come last."""
    return sorted(_moments(job, failures, actions), key=lambda moment: moment.at)


def _moments(job: Job, failures: Sequence[FailureRecord], actions: Sequence[Action]) -> Iterator[Moment]:
    yield Moment(job.created_at, "enqueued")
    for failure in failures:
        yield Moment(failure.failed_at, f"attempt {failure.attempt} {failure.kind}", failure.error)
    for action in actions:
        detail = f"it was {action.detail}" if action.detail else None
        yield Moment(action.acted_at, f"{action.action} by {action.actor}", detail)
    if job.started_at is not None and not _has_failed(job, failures):
        yield Moment(job.started_at, f"attempt {job.attempt} started", job.locked_by and f"by worker {job.locked_by}")
    if job.cancel_requested_at is not None:
        yield Moment(job.cancel_requested_at, "asked to stop")
    if job.finished_at is not None and job.state in FINAL:
        # The failure that ended the job is recorded just after its end, in the same transaction.
        yield Moment(max([job.finished_at, *(failure.failed_at for failure in failures)]), f"ended {job.state}")
    if job.state in DUE_LATER:
        yield Moment(job.available_at, "due")


def _has_failed(job: Job, failures: Sequence[FailureRecord]) -> bool:
    """Return whether the last attempt is already in the failure log."""
    return any(failure.attempt == job.attempt for failure in failures)
