"""A job's history as a list of readable events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from stagepost.model.job import FailureRecord, JobRow, to_datetime
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
    """One event of a timeline."""

    at: datetime
    what: str
    detail: str | None = None


def timeline_of(job: JobRow, failures: Sequence[FailureRecord], actions: Sequence[Action]) -> list[Moment]:
    """Order all known events of a job by time; future events come last."""
    return sorted(_moments(job, failures, actions), key=lambda moment: moment.at)


def _moments(job: JobRow, failures: Sequence[FailureRecord], actions: Sequence[Action]) -> Iterator[Moment]:
    yield Moment(to_datetime(job.created_at), "enqueued")
    for failure in failures:
        yield Moment(failure.failed_at, f"attempt {failure.attempt} {failure.kind}", failure.error)
    for action in actions:
        detail = f"it was {action.detail}" if action.detail else None
        yield Moment(to_datetime(action.acted_at), f"{action.action} by {action.actor}", detail)
    if job.started_at is not None and not _has_failed(job, failures):
        by = job.locked_by and f"by worker {job.locked_by}"
        yield Moment(to_datetime(job.started_at), f"attempt {job.attempt} started", by)
    if job.cancel_requested_at is not None:
        yield Moment(to_datetime(job.cancel_requested_at), "asked to stop")
    if job.finished_at is not None and job.state in FINAL:
        # The failure that ended the job is recorded just after its end, in the same transaction.
        ended_at = max([to_datetime(job.finished_at), *(failure.failed_at for failure in failures)])
        yield Moment(ended_at, f"ended {job.state}")
    if job.state in DUE_LATER:
        yield Moment(to_datetime(job.available_at), "due")


def _has_failed(job: JobRow, failures: Sequence[FailureRecord]) -> bool:
    """Return whether the last attempt is already in the failure log."""
    return any(failure.attempt == job.attempt for failure in failures)
