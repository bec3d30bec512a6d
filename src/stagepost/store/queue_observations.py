"""Operations that record what is observed of broker queues, so that lost messages can be recognised."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from stagepost.database.statement import Statement, Statements, operation, query
from stagepost.model.job import microseconds

__all__ = [
    "QueueObservation",
    "begin_carrying",
    "declare_patience",
    "forget_queues",
    "note_active",
    "observe_queue",
    "resent_queues",
]

ALWAYS = 2**62
"""Longer than any duration."""


class QueueObservation(msgspec.Struct, frozen=True):
    """How long ago things were observed of a broker queue, in microseconds; None if never or unknown."""

    empty_for_us: int | None = None
    idle_for_us: int | None = None
    looked_for_us: int | None = None
    patience_us: int | None = None
    """How long the external program that runs the queue's tasks may be silent; None if workers run them."""

    @property
    def patience(self) -> timedelta | None:
        """`patience_us` as a timedelta."""
        return None if self.patience_us is None else timedelta(microseconds=self.patience_us)


@operation
def begin_carrying(queue_name: str) -> Statements[int]:
    """Record that a broker carries a queue, and return since when, in microseconds since 1970."""
    yield Statement("add_channel", {"queue_name": queue_name})
    [(since,)] = yield Statement("carried_since", {"queue_name": queue_name})
    return int(since)


@operation
def declare_patience(queues: Mapping[str, timedelta | None]) -> Statements[None]:
    """Store how long external programs may be silent, for an upkeep leader that does not know their tasks."""
    for queue_name, patience in sorted(queues.items()):
        patience_us = None if patience is None else microseconds(patience)
        yield Statement("add_channel", {"queue_name": queue_name})
        yield Statement("declare_patience", {"queue_name": queue_name, "patience_us": patience_us})


@operation
def note_active(queue_name: str) -> Statements[None]:
    """Record that a consumer has taken a message from a queue or answered one."""
    yield Statement("add_channel", {"queue_name": queue_name})
    yield Statement("note_active", {"queue_name": queue_name})


@operation
def observe_queue(
    queue_name: str, *, is_empty: bool, has_answers: bool = False, gap: timedelta | None = None
) -> Statements[QueueObservation]:
    """Record whether a queue is empty, that is, holds no message a consumer could take, and return all observations.

    An external program's queue counts as non-empty while answers wait to be accepted, because they may answer requests
    that seem lost. If the last look was longer ago than `gap`, the empty time restarts at zero: messages may have come
    and gone since.
    """
    gap_us = ALWAYS if gap is None else microseconds(gap)
    yield Statement("add_channel", {"queue_name": queue_name})
    seen = {"is_empty": int(is_empty), "has_answers": int(has_answers), "gap_us": gap_us}
    yield Statement("note_empty", {"queue_name": queue_name, **seen})
    [row] = yield Statement("read_channel", {"queue_name": queue_name})
    return QueueObservation(*row)


@query
def resent_queues() -> Statements[dict[str, int]]:
    """The time of each queue's last resend of lost messages, in microseconds since 1970."""
    rows = yield Statement("read_resent")
    return {str(queue_name): int(resent_at) for queue_name, resent_at in rows}


@operation
def forget_queues(*, silent: timedelta) -> Statements[None]:
    """Delete the records of queues not looked at for `silent`, which no broker carries any more."""
    yield Statement("forget_channels", {"silent_us": microseconds(silent)})
