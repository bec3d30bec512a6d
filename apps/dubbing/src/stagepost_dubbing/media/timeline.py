"""Decides when each dubbed sentence starts, and how fast it is spoken.

A sentence has a slot: the time in which the original is spoken. What is too long for its slot is helped in this order:

1. spoken faster, up to `fastest`, which still sounds natural;
2. given the silence after its slot, up to the next slot, or to the end of the video;
3. given a moment of the next slot, which then starts up to `tolerance` late;
4. spoken faster than that, up to `utmost`;
5. what is longer even then moves the sentences after it, and the last one outlasts the video.

Words are never cut, and two sentences never sound at once: where nothing else is left, exact times give way, and the
length of the video too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["Placed", "Slot", "place"]


class Slot(msgspec.Struct, frozen=True):
    """When the original is spoken; seconds from the beginning."""

    start: float
    end: float


class Placed(msgspec.Struct, frozen=True):
    """When a sentence is spoken instead."""

    slot: Slot
    start: float
    seconds: float
    """How long it sounds, at its speed."""
    speed: float
    """1 as it was spoken, 2 twice as fast."""

    @property
    def end(self) -> float:
        """When it is over."""
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
    """Give every sentence its time; `lengths` are their seconds as spoken, 0 for one that has no words.

    Slots come in order of their start. `duration` is the video's.
    """
    starts = [slot.start for slot in slots]
    if starts != sorted(starts):
        raise ValueError("slots must come in order of their start")
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
    """Say for each slot when the next one starts that has words."""
    found: list[float | None] = []
    following = None
    for slot, length in zip(reversed(slots), reversed(lengths), strict=True):
        found.append(following)
        following = slot.start if length else following
    return found[::-1]


def _speed(length: float, own: float, at_most: float, *, fastest: float, utmost: float) -> float:
    """Choose the speed for what may take `own` seconds, and `at_most` with all that can be borrowed."""
    if length <= own:
        return 1.0
    if length <= own * fastest:
        return length / own
    if length <= at_most * fastest:
        return fastest
    return min(utmost, length / at_most) if at_most > 0 else utmost
