"""Operations on what is known of queues at a broker: since when they are empty, and who may keep silent how long."""

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
    "forget_channels",
    "look_at",
    "note_active",
    "resent_queues",
]

ALWAYS = 2**62
"""Longer than any duration."""


class QueueObservation(msgspec.Struct, frozen=True):
    """What is known of a queue at the broker, as durations in microseconds; None is not known, or never."""

    empty_for_us: int | None = None
    idle_for_us: int | None = None
    looked_for_us: int | None = None
    patience_us: int | None = None
    """How long a foreign program that runs its tasks may be silent; None if our workers run them."""

    @property
    def patience(self) -> timedelta | None:
        """The same as a duration."""
        return None if self.patience_us is None else timedelta(microseconds=self.patience_us)


@operation
def begin_carrying(queue_name: str) -> Statements[int]:
    """Note that a broker carries a queue; returns since when it does, in microseconds since 1970."""
    yield Statement("add_channel", {"queue_name": queue_name})
    [(since,)] = yield Statement("carried_since", {"queue_name": queue_name})
    return int(since)


@operation
def declare_patience(queues: Mapping[str, timedelta | None]) -> Statements[None]:
    """Write down how long foreign programs may be silent, for whoever leads: it may not know their tasks."""
    for queue_name, patience in sorted(queues.items()):
        patience_us = None if patience is None else microseconds(patience)
        yield Statement("add_channel", {"queue_name": queue_name})
        yield Statement("declare_patience", {"queue_name": queue_name, "patience_us": patience_us})


@operation
def note_active(queue_name: str) -> Statements[None]:
    """Note that somebody took a message from a queue, or answered one."""
    yield Statement("add_channel", {"queue_name": queue_name})
    yield Statement("note_active", {"queue_name": queue_name})


@operation
def look_at(
    queue_name: str, *, is_empty: bool, has_answers: bool = False, gap: timedelta | None = None
) -> Statements[QueueObservation]:
    """Note whether a queue has messages that nobody took yet; returns since when it had none.

    A foreign program's has some as long as there are answers to take in: they may be to what seems to be missing. If
    the last look is longer ago than `gap`, the time begins anew: there may have been some in between.
    """
    gap_us = ALWAYS if gap is None else microseconds(gap)
    yield Statement("add_channel", {"queue_name": queue_name})
    seen = {"is_empty": int(is_empty), "has_answers": int(has_answers), "gap_us": gap_us}
    yield Statement("note_empty", {"queue_name": queue_name, **seen})
    [row] = yield Statement("read_channel", {"queue_name": queue_name})
    return QueueObservation(*row)


@query
def resent_queues() -> Statements[dict[str, int]]:
    """Say when jobs of each queue were last sent again because their messages seemed to be lost."""
    rows = yield Statement("read_resent")
    return {str(queue_name): int(resent_at) for queue_name, resent_at in rows}


@operation
def forget_channels(*, silent: timedelta) -> Statements[None]:
    """Forget queues that nobody has looked at for so long: no broker carries them any more."""
    yield Statement("forget_channels", {"silent_us": microseconds(silent)})
