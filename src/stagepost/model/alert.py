"""Alerts: what came to an end outside of any handler, so that nobody's code has seen it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Self

import msgspec

from stagepost.model.identity import new_id

__all__ = ["ALERT_QUEUE", "LARGEST", "Alert", "AlertKind"]

ALERT_QUEUE = "stagepost.alerts"
"""No broker carries it: what tells of a broker's trouble must not wait for the broker."""
MOST_IDS = 100
MOST_CHARACTERS = 2000
"""Of a reason: what tells of trouble must not fail for its size."""


class AlertKind(StrEnum):
    """What happened."""

    CRASHED = "crashed"
    """Jobs killed their workers too often, and became dead letters."""
    UNROUTABLE = "unroutable"
    """Messages had nowhere to go for too long: their jobs failed, or they are with the dead letters."""
    UNANSWERED = "unanswered"
    """A foreign program was silent about its requests; their jobs became dead letters."""
    GIVEN_UP = "given_up"
    """The broker gave requests up, because they expired or were rejected; their jobs became dead letters."""
    FAILED = "failed"
    """Jobs of queues that a broker carries failed for good, and a notice of each came to its dead letters."""
    STRAY = "stray"
    """Messages came that are no job's, or that nobody can read; they are with the dead letters."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Tells of jobs or messages that ended alike, at the same time; at least once."""

    id: str
    """Its own, and that of the job which tells of it."""
    kind: AlertKind
    """What happened."""
    queue: str | None = None
    """Whose jobs they are, or the broker's queue that they came from; None if they are of several."""
    number: int
    """How many."""
    job_ids: list[str]
    """Of the first hundred, where they are jobs."""
    reason: str
    """What happened to them, in words."""

    def __post_init__(self) -> None:
        # It may quote what strangers wrote.
        readable = self.reason.encode(errors="replace").decode().replace("\0", "�")
        msgspec.structs.force_setattr(self, "reason", readable[:MOST_CHARACTERS])

    @classmethod
    def of_jobs(cls, kind: AlertKind, job_ids: Iterable[str], reason: str, *, queue: str | None = None) -> Self | None:
        """Tell of jobs, if there are any."""
        ids = list(job_ids)
        if not ids:
            return None
        return cls(id=new_id(), kind=kind, queue=queue, number=len(ids), job_ids=ids[:MOST_IDS], reason=reason)

    @classmethod
    def of_messages(cls, kind: AlertKind, number: int, reason: str, *, queue: str | None = None) -> Self:
        """Tell of messages that are no job's."""
        return cls(id=new_id(), kind=kind, queue=queue, number=number, job_ids=[], reason=reason)


LARGEST = Alert(
    id=new_id(),
    kind=AlertKind.UNROUTABLE,
    queue="x" * 191,
    number=2**31,
    job_ids=[new_id()] * MOST_IDS,
    reason="\1" * MOST_CHARACTERS,
)
"""An example, as large as they get: JSON writes such a character with six."""
