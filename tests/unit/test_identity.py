"""Ids are UUIDv7, unique, and grow."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from uuid import RFC_4122, UUID

from stagepost.model.identity import new_id


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


def test_ids_grow_and_stay_unique_across_threads() -> None:
    made: list[list[str]] = [[] for _ in range(8)]
    together = threading.Barrier(8)

    def make(ids: list[str]) -> None:
        together.wait()
        ids.extend(new_id() for _ in range(5_000))

    threads = [threading.Thread(target=make, args=(ids,)) for ids in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for ids in made:
        assert all(earlier < later for earlier, later in pairwise(ids))
    assert len({i for ids in made for i in ids}) == 40_000
    assert new_id() > max(ids[-1] for ids in made)
