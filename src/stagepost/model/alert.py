"""Alerts: reports of jobs and messages that ended outside any handler, where no application code could notice."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Self

import msgspec

from stagepost.model.identity import new_id

__all__ = ["ALERT_QUEUE", "LARGEST", "Alert", "AlertKind"]

ALERT_QUEUE = "stagepost.alerts"
"""No broker carries this queue: a report of trouble with the broker must not depend on the broker."""
MOST_IDS = 100
MOST_CHARACTERS = 2000
"""Maximum length of a reason, so that an alert is never too large to enqueue."""


class AlertKind(StrEnum):
    """What happened to the jobs or messages."""

    CRASHED = "crashed"
    """Jobs crashed their workers too often and became dead letters."""
    UNROUTABLE = "unroutable"
    """Messages were unroutable for too long: their jobs failed, or the messages became dead letters."""
    UNANSWERED = "unanswered"
    """An external program did not answer its requests; their jobs became dead letters."""
    UNDELIVERED = "undelivered"
    """The broker dropped requests because they expired or were rejected; their jobs became dead letters."""
    FAILED = "failed"
    """Jobs of carried queues failed permanently; their notices arrived in the broker's dead-letter queue."""
    STRAY = "stray"
    """Messages arrived that belong to no job or cannot be read; they became dead letters."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Reports jobs or messages that ended at the same time for the same reason; delivered at least once."""

    id: str
    """Id of the alert and of the job that reports it."""
    kind: AlertKind
    """The kind of event."""
    queue: str | None = None
    """The jobs' queue, or the broker's queue that the messages came from; None if there are several."""
    number: int
    """Number of jobs or messages."""
    job_ids: list[str]
    """Ids of the first hundred jobs; empty for messages."""
    reason: str
    """A description of what happened."""

    def __post_init__(self) -> None:
        # The reason may quote text from outside.
        readable = self.reason.encode(errors="replace").decode().replace("\0", "�")
        msgspec.structs.force_setattr(self, "reason", readable[:MOST_CHARACTERS])

    @classmethod
    def of_jobs(cls, kind: AlertKind, job_ids: Iterable[str], reason: str, *, queue: str | None = None) -> Self | None:
        """Report jobs; returns None if there are none."""
        ids = list(job_ids)
        if not ids:
            return None
        return cls(id=new_id(), kind=kind, queue=queue, number=len(ids), job_ids=ids[:MOST_IDS], reason=reason)

    @classmethod
    def of_messages(cls, kind: AlertKind, number: int, reason: str, *, queue: str | None = None) -> Self:
        """Report messages that belong to no job."""
        return cls(id=new_id(), kind=kind, queue=queue, number=number, job_ids=[], reason=reason)


LARGEST = Alert(
    id=new_id(),
    kind=AlertKind.UNROUTABLE,
    queue="x" * 191,
    number=2**31,
    job_ids=[new_id()] * MOST_IDS,
    reason="\1" * MOST_CHARACTERS,
)
"""An alert of the largest possible size: JSON needs six characters for each of these."""
