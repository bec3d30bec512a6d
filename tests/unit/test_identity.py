"""Ids are UUIDv7, unique, and grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import FrameType
from typing import Any, TypeAlias
from uuid import RFC_4122, UUID

import pytest

from stagepost.model.identity import new_id, new_ids

TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]


def test_an_id_is_a_uuid_of_version_7() -> None:
    for _ in range(1_000):
        text = new_id()
        number = UUID(text)

        assert str(number) == text
        assert number.version == 7
        assert number.variant == RFC_4122


def test_an_id_begins_with_the_time_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    made_at = UUID(new_id()).int >> 80

    # Ids made faster than 4,096 per millisecond borrow from the milliseconds to come.
    assert before <= made_at <= time.time_ns() // 1_000_000 + 1_000


def test_a_hundred_thousand_ids_are_unique_and_grow() -> None:
    ids = [new_id() for _ in range(100_000)]

    assert len(set(ids)) == 100_000
    assert all(earlier < later for earlier, later in pairwise(ids))


@pytest.mark.parametrize("number", [0, 1, 4_096, 100_000])
def test_ids_made_at_once_are_unique_and_grow_like_those_made_one_by_one(number: int) -> None:
    ids = [new_id(), *new_ids(number), new_id(), *new_ids(number), new_id()]

    assert len(ids) == 2 * number + 3
    assert all(earlier < later for earlier, later in pairwise(ids))
    assert {UUID(text).version for text in ids} == {7}
    # Two ids of the same time and counter would be told apart, and ordered, by chance only.
    assert len({UUID(text).int >> 64 for text in ids}) == len(ids)


def test_ids_grow_while_the_clock_stands_still_or_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    ids = []
    for seconds_back in (0, 3_600):
        monkeypatch.setattr(time, "time_ns", lambda back=seconds_back: now - back * 1_000_000_000)
        ids += [new_id() for _ in range(10_000)]

    assert all(earlier < later for earlier, later in pairwise(ids))
    assert {UUID(text).version for text in ids} == {7}


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let new threads interrupt each other on every line; by itself CPython would not do so inside `new_id`."""

    def yield_at_every_line(_frame: FrameType, _event: str, _argument: object) -> TraceFunction:
        time.sleep(0)
        return yield_at_every_line

    usual = threading.gettrace()
    threading.settrace(yield_at_every_line)
    yield
    threading.settrace(usual)


@pytest.mark.usefixtures("hasty_threads")
def test_ids_grow_and_stay_unique_across_threads() -> None:
    made: list[list[str]] = [[] for _ in range(8)]
    together = threading.Barrier(8)

    def make(ids: list[str]) -> None:
        together.wait()
        ids.extend(new_id() for _ in range(100))
        ids.extend(new_ids(100))

    threads = [threading.Thread(target=make, args=(ids,)) for ids in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for ids in made:
        assert all(earlier < later for earlier, later in pairwise(ids))
    # Two ids of the same time and counter would be told apart, and ordered, by chance only.
    assert len({UUID(made_id).int >> 64 for ids in made for made_id in ids}) == 1_600
    assert new_id() > max(ids[-1] for ids in made)
