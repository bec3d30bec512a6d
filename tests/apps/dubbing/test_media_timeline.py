"""Where sentences are placed: what holds for every talk, and each way to help what is too long."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepost_dubbing.media.timeline import Placed, Slot, place

FASTEST, UTMOST, TOLERANCE = 1.35, 2.0, 0.15
EXACT = 1e-6

seconds = st.floats(min_value=0, max_value=20, allow_nan=False)
pauses = st.one_of(st.just(0.0), st.floats(min_value=-2, max_value=5, allow_nan=False))


@st.composite
def talks(draw: st.DrawFn, *, fits: bool = False) -> tuple[list[Slot], list[float], float]:
    """Slots in order, some of them overlapping or empty, and how long each is spoken.

    `fits` makes speeches that can be spoken in time at the utmost speed.
    """
    slots: list[Slot] = []
    start = draw(seconds)
    for length, pause in draw(st.lists(st.tuples(seconds, pauses), max_size=8)):
        slots.append(Slot(start, start + length))
        start = max(start, start + length + pause)
    duration = start + draw(seconds)
    # The sentence before may take up to `TOLERANCE` of the time of the last one, which then has less until the end.
    following = [min(start, duration - TOLERANCE) for start in [*(slot.start for slot in slots), duration][1:]]
    rooms = [max(0.0, end - slot.start) * UTMOST * 0.999 for slot, end in zip(slots, following, strict=True)]
    return slots, [draw(st.floats(0, room) if fits else st.floats(0, 30)) for room in rooms], duration


@settings(max_examples=500)
@given(talks())
def test_words_are_never_cut_and_never_sound_at_once(talk: tuple[list[Slot], list[float], float]) -> None:
    slots, lengths, duration = talk
    placed = place(slots, lengths, duration=duration)

    assert [one.slot for one in placed] == slots
    for one, length in zip(placed, lengths, strict=True):
        assert one.seconds * one.speed == pytest.approx(length)
        assert 1 <= one.speed <= UTMOST
        assert one.start >= one.slot.start
    spoken = [one for one in placed if one.seconds]
    for one, following in pairwise(spoken):
        assert one.end <= following.start + EXACT


@settings(max_examples=500)
@given(talks(fits=True))
def test_what_can_be_in_time_is(talk: tuple[list[Slot], list[float], float]) -> None:
    slots, lengths, duration = talk
    placed = place(slots, lengths, duration=duration)

    assert all(one.start <= one.slot.start + TOLERANCE + EXACT for one in placed)
    assert all(one.end <= duration + EXACT for one in placed)


@settings(max_examples=300)
@given(talks())
def test_what_fits_its_slot_is_spoken_there_as_it_is(talk: tuple[list[Slot], list[float], float]) -> None:
    slots, lengths, duration = talk
    following = [*(slot.start for slot in slots), duration][1:]
    short = [
        min(length, max(0.0, min(slot.end, end) - slot.start))
        for slot, length, end in zip(slots, lengths, following, strict=True)
    ]

    placed = place(slots, short, duration=duration)

    assert [(one.start, one.speed) for one in placed] == [(slot.start, 1.0) for slot in slots]


@settings(max_examples=300)
@given(talks())
def test_nobody_hurries_more_than_is_natural_while_there_is_silence(
    talk: tuple[list[Slot], list[float], float],
) -> None:
    slots, lengths, duration = talk
    placed = place(slots, lengths, duration=duration)

    spoken = [one for one in placed if one.seconds]
    for one, following in pairwise(spoken):
        if one.speed > FASTEST + EXACT:
            assert one.end >= following.slot.start + TOLERANCE - EXACT
    if spoken and spoken[-1].speed > FASTEST + EXACT:
        assert spoken[-1].end >= min(duration, spoken[-1].slot.end) - EXACT


def only(slots: list[Slot], lengths: list[float], duration: float = 60.0) -> list[Placed]:
    return place(slots, lengths, duration=duration)


def test_a_little_too_long_is_spoken_faster_within_its_slot() -> None:
    [first, _] = only([Slot(1, 3), Slot(4, 6)], [2.5, 1])

    assert [first.start, first.end, first.speed] == pytest.approx([1, 3, 1.25])


def test_longer_than_that_takes_the_silence_after_it() -> None:
    [first, second] = only([Slot(1, 3), Slot(4, 6)], [3.9, 1])

    assert first.speed == FASTEST
    assert 3 < first.end < 4
    assert second.start == 4


def test_then_the_next_one_starts_a_moment_late() -> None:
    [first, second] = only([Slot(1, 3), Slot(3.2, 6)], [3.1, 1])

    assert first.speed == FASTEST
    assert second.start == first.end
    assert 3.2 < second.start <= 3.35


def test_then_it_is_spoken_as_fast_as_anybody_understands() -> None:
    [first, second] = only([Slot(1, 3), Slot(3.2, 6)], [4, 1])

    assert FASTEST < first.speed < UTMOST
    assert second.start == pytest.approx(3.35)


def test_what_is_longer_even_then_moves_the_next_one_which_is_never_cut() -> None:
    [first, second] = only([Slot(1, 2), Slot(2, 3)], [5, 1])

    assert (first.speed, first.end) == (UTMOST, 3.5)
    assert (second.start, second.seconds * second.speed) == (3.5, 1)


def test_the_last_sentence_may_use_the_rest_of_the_video() -> None:
    [last] = only([Slot(50, 52)], [9], duration=60)

    assert (last.speed, last.end <= 60) == (FASTEST, True)


def test_a_last_sentence_that_cannot_end_with_the_video_outlasts_it() -> None:
    [last] = only([Slot(58, 60)], [6], duration=60)

    assert (last.speed, last.end) == (UTMOST, 61)


def test_a_sentence_without_words_leaves_its_time_to_the_one_before() -> None:
    [first, empty, third] = only([Slot(0, 1), Slot(1, 2), Slot(4, 5)], [3.9, 0, 1])

    assert (first.speed, first.end < 4) == (FASTEST, True)
    assert (empty.start, empty.seconds, third.start) == (1, 0, 4)


def test_slots_must_be_in_order() -> None:
    with pytest.raises(ValueError, match="in order"):
        only([Slot(2, 3), Slot(1, 2)], [1, 1])
