"""Decides when each dubbed sentence starts, and how fast it is spoken.

A sentence has a slot: the time of the original speech. A sentence that is too long for its slot is, in this order:

1. spoken faster, up to `fastest`, which still sounds natural;
2. extended into the silence after its slot, up to the next slot or the end of the video;
3. extended into the next slot, whose sentence then starts up to `tolerance` late;
4. spoken even faster, up to `utmost`;
5. allowed to delay the sentences after it, so that the last one may outlast the video.

Words are never cut, and two sentences never overlap: if necessary, exact times and the length of the video give way.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["Placed", "Slot", "place"]


class Slot(msgspec.Struct, frozen=True):
    """The time of the original speech, in seconds from the beginning."""

    start: float
    end: float


class Placed(msgspec.Struct, frozen=True):
    """The time and speed of a dubbed sentence."""

    slot: Slot
    start: float
    seconds: float
    """Its duration at this speed."""
    speed: float
    """1 is the original speed, 2 is twice as fast."""

    @property
    def end(self) -> float:
        """When the sentence ends."""
        return self.start + self.seconds


def place(
    slots: Sequence[Slot],
    lengths: Sequence[float],
    *,
    duration: float,
    fastest: float = 1.35,
    utmost: float = 2.0,
    tolerance: float = 0.15,
) -> list[Placed]:
    """Place every sentence; `lengths` are their durations in seconds, 0 for one without words.

    Slots must be in order of their start. `duration` is the video's.
    """
    starts = [slot.start for slot in slots]
    if starts != sorted(starts):
        raise ValueError("slots must be in order of their start")
    placed: list[Placed] = []
    free_from = 0.0
    for slot, length, following in zip(slots, lengths, _following(slots, lengths), strict=True):
        start = max(slot.start, free_from) if length else slot.start
        limit = duration if following is None else following + tolerance
        if limit <= start:
            limit = slot.end
        own = min(slot.end, limit if following is None else following) - start
        speed = _speed(length, own, limit - start, fastest=fastest, utmost=utmost)
        placed.append(Placed(slot, start, length / speed, speed))
        free_from = max(free_from, placed[-1].end)
    return placed


def _following(slots: Sequence[Slot], lengths: Sequence[float]) -> list[float | None]:
    """Return, for each slot, the start of the next slot that has words."""
    found: list[float | None] = []
    following = None
    for slot, length in zip(reversed(slots), reversed(lengths), strict=True):
        found.append(following)
        following = slot.start if length else following
    return found[::-1]


def _speed(length: float, own: float, at_most: float, *, fastest: float, utmost: float) -> float:
    """Choose the speed for a sentence with `own` seconds, or `at_most` with all extensions."""
    if length <= own:
        return 1.0
    if length <= own * fastest:
        return length / own
    if length <= at_most * fastest:
        return fastest
    return min(utmost, length / at_most) if at_most > 0 else utmost
