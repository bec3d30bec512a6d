"""Where someone speaks: the same for the same sound, in order, neither too long nor too short."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stagepost_dubbing.engines.speech_parts import RATE, Part, Pauses, find_parts, join_parts, loudness, split_part
from tests.apps.dubbing.spoken import SENTENCES, Talk, speak_english, talk

PAUSES = Pauses()
SOUNDS = st.lists(
    st.tuples(st.sampled_from(["words", "silence", "noise"]), st.integers(1, 30)), min_size=1, max_size=12
)


def sound_of(pieces: list[tuple[str, int]]) -> NDArray[np.int16]:
    """Put pieces of a tenth of a second each together."""
    words = np.concatenate([speak_english(sentence) for sentence in SENTENCES[:2]])
    noise = np.random.default_rng(7).normal(0, 200, len(words)).astype(np.int16)
    sources = {"words": words, "silence": noise * 0, "noise": noise}
    return np.concatenate([sources[kind][: tenths * RATE // 10] for kind, tenths in pieces])


@given(SOUNDS)
@settings(max_examples=60, deadline=None)
def test_parts_are_in_order_within_the_sound_and_always_the_same(pieces: list[tuple[str, int]]) -> None:
    sound = sound_of(pieces)
    parts = find_parts(sound)

    assert parts == find_parts(sound.copy())
    assert all(0 <= part.start < part.end <= len(sound) for part in parts)
    assert all(before.end <= after.start for before, after in itertools.pairwise(parts))
    assert all(part.length <= PAUSES.longest * RATE for part in parts)


@pytest.fixture(scope="module")
def given_talk() -> Talk:
    return talk(SENTENCES[:4])


def test_silence_in_front_moves_the_parts_and_changes_nothing_else(given_talk: Talk) -> None:
    later = np.concatenate([np.zeros(480 * 100, np.int16), given_talk.samples])
    there = np.array(find_parts(given_talk.samples))
    assert np.array(find_parts(later)) - 480 * 100 == pytest.approx(there, abs=RATE * 0.05)


@pytest.mark.parametrize("decibels", [20, 30, 40])
def test_parts_begin_with_the_sentence_in_a_room_that_is_not_quiet(given_talk: Talk, decibels: int) -> None:
    power = np.sqrt((given_talk.samples.astype(np.float64) ** 2).mean())
    noise = np.random.default_rng(3).normal(0, power / 10 ** (decibels / 20), len(given_talk.samples))
    starts = [part.start / RATE for part in find_parts((given_talk.samples * 0.9 + noise).astype(np.int16))]

    assert [min(starts, key=lambda other: abs(other - start)) for start, _ in given_talk.times] == pytest.approx(
        [start for start, _ in given_talk.times], abs=0.1
    )


def test_a_talk_without_pauses_is_divided_where_it_is_quietest(given_talk: Talk) -> None:
    sound = np.concatenate([speak_english(sentence) for sentence in SENTENCES] * 2)
    levels = loudness(sound)
    pauses = Pauses(longest=6.0)
    parts = split_part(Part(0, len(sound)), levels, pauses)

    assert len(parts) >= len(sound) / RATE / 6
    for before, after in itertools.pairwise(parts):
        around = levels[before.end // 160 - 2 : after.start // 160 + 2]
        assert np.min(around) < np.median(levels) / 10


PARTS = st.lists(st.tuples(st.integers(1, 5 * RATE), st.integers(1, 2 * RATE)), max_size=20).map(
    lambda steps: [
        Part(at + gap, at + gap + length)
        for at, (length, gap) in zip(
            itertools.accumulate((length + gap for length, gap in steps), initial=0), steps, strict=False
        )
    ]
)


@given(PARTS)
def test_short_parts_are_joined_if_a_neighbour_is_near_and_all_sound_stays(parts: list[Part]) -> None:
    joined = join_parts(parts, PAUSES)

    assert all(any(whole.start <= part.start and part.end <= whole.end for whole in joined) for part in parts)
    assert all(part.length <= PAUSES.longest * RATE for part in joined)
    for before, after in itertools.pairwise(joined):
        lonely = after.start - before.end > PAUSES.near * RATE
        too_long = after.end - before.start > PAUSES.longest * RATE
        assert lonely or too_long or min(before.length, after.length) >= PAUSES.shortest * RATE


@pytest.mark.parametrize("seconds", [0, 0.001, 0.029, 0.5])
def test_sound_that_is_too_short_to_hold_a_word_has_no_parts(seconds: float) -> None:
    assert find_parts(np.zeros(int(seconds * RATE), np.int16)) == []
