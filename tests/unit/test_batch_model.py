"""The model of batches, without a database: keys, progress, and how a source is split into chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from string import ascii_letters
from typing import Any
from uuid import UUID

import pytest

from stagepost import Cursor, Item
from stagepost.client.item_feed import ItemFeed, chunks_of, chunks_of_async, read_all, read_all_async
from stagepost.errors import ConfigurationError, SourceMismatch
from stagepost.model.batch import (
    BatchKind,
    BatchRow,
    BatchState,
    Counts,
    OnFailed,
    check_key,
    id_range,
    item_id,
    new_item,
    progress_of,
    summary_of,
)
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.store.batches import Added

BATCH_ID = "019a8a56-0f3e-7c44-a7d1-2b9c1d0e5a03"
SECOND = 1_000_000


def a_batch(**changes: Any) -> BatchRow:
    facts: dict[str, Any] = {
        "id": BATCH_ID, "key": "upload:42", "kind": BatchKind.BATCH, "state": BatchState.SEALED, "gate": None,
        "on_failed": OnFailed.FINISH, "owner_id": None, "position": 0, "cursor_key": None, "on_complete": None,
        "result": None, "outcome": None, "cancelled_at": None, "created_at": 10 * SECOND, "sealed_at": None,
        "done_at": None,
    }  # fmt: skip
    return BatchRow(**(facts | changes))


def source(number: int) -> list[Item]:
    return [Item(f"f{at}", NewJob(id="", task_name="t", payload="{}")) for at in range(number)]


@pytest.mark.parametrize("key", ["a", "f" * 191, "übung", "dataset:7/file 1.wav"])
def test_a_key_may_be_any_text(key: str) -> None:
    check_key("item key", key)


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("", "has 0 characters: it must have 1 to 191"),
        ("f" * 192, "has 192 characters"),
        (" a", "white space"),
        ("a\n", "white space"),
        ("a\0b", "some databases cannot store"),
        ("\ud800", "some databases cannot store"),
        (7, "is not a string"),
    ],
)
def test_a_key_that_cannot_be_kept_is_a_clear_error(key: Any, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        check_key("item key", key)


def test_an_item_has_no_unique_key_beside_its_own() -> None:
    with pytest.raises(ConfigurationError, match="unique by its own key"):
        new_item("f1", NewJob(id="", task_name="t", payload="{}", unique_key="u"))


def test_progress_takes_its_rate_over_the_whole_life() -> None:
    progress = progress_of(a_batch(), Counts(completed=300, failed=100, queued=600), now=50 * SECOND)

    assert (progress.total, progress.fraction, progress.per_second) == (1000, 0.4, 10.0)
    assert progress.eta == timedelta(seconds=60)


def test_progress_takes_its_rate_since_an_earlier_look() -> None:
    earlier = progress_of(a_batch(), Counts(completed=300, queued=700), now=50 * SECOND)

    progress = progress_of(a_batch(), Counts(completed=500, queued=500), now=54 * SECOND, since=earlier)

    assert (progress.per_second, progress.eta) == (50.0, timedelta(seconds=10))


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"state": BatchState.OPEN}, Counts(completed=5, queued=5)),
        ({}, Counts(queued=5)),
        ({}, Counts(failed=5)),
        ({"state": BatchState.DONE, "done_at": 20 * SECOND}, Counts(completed=5)),
    ],
    ids=["more may come", "nothing moved yet", "only failed are left", "done"],
)
def test_there_is_no_eta_if_it_cannot_be_estimated(changes: dict[str, Any], counts: Counts) -> None:
    assert progress_of(a_batch(**changes), counts, now=50 * SECOND).eta is None


def test_a_finished_batch_keeps_its_rate() -> None:
    done = a_batch(state=BatchState.DONE, done_at=20 * SECOND)

    assert progress_of(done, Counts(completed=50), now=5000 * SECOND).per_second == 5.0
    assert progress_of(done, Counts(), now=5000 * SECOND).fraction == 1.0


def test_items_that_are_retried_make_no_negative_rate_and_an_eta_has_a_limit() -> None:
    earlier = progress_of(a_batch(), Counts(failed=10), now=50 * SECOND)

    assert progress_of(a_batch(), Counts(queued=10), now=51 * SECOND, since=earlier).per_second == 0.0
    slow = progress_of(a_batch(), Counts(completed=1, queued=10**15), now=10**15)
    assert slow.eta == timedelta(days=3650)


def test_a_summary_says_how_far_a_batch_is() -> None:
    counts = Counts(completed=498_988, failed=7, dead_letter=5, queued=1000)

    assert summary_of(BatchState.SEALED, counts) == "499,000 of 500,000 done, 12 failed"
    assert summary_of(BatchState.OPEN, Counts(queued=2)) == "0 of 2 done, more may come"


@pytest.mark.parametrize(("number", "sizes"), [(0, []), (4, [4]), (10, [4, 4, 2])])
def test_a_source_is_cut_into_chunks(number: int, sizes: list[int]) -> None:
    async def asynchronous() -> AsyncIterator[Item]:
        for item in source(number):
            yield item

    async def lengths(items: Any) -> list[int]:
        return [len(chunk) async for chunk in chunks_of_async(items, 4, lambda item: item)]

    assert [len(chunk) for chunk in chunks_of(iter(source(number)), 4, lambda item: item)] == sizes
    assert asyncio.run(lengths(asynchronous())) == sizes
    assert asyncio.run(lengths(iter(source(number)))) == sizes


def test_a_chunk_ends_early_where_its_items_are_large() -> None:
    weights = {f"{position}": weight for position, weight in enumerate([1, 4_194_303, 1, 9_000_000, 1, 1])}

    def size_of(item: Item) -> int:
        return weights[item.key]

    async def cut() -> list[list[str]]:
        chunks = chunks_of_async(iter(items), 4, lambda item: item, size_of=size_of)
        return [[item.key for item in chunk] async for chunk in chunks]

    items = [Item(key, item.job) for item, key in zip(source(6), weights, strict=True)]

    plain = [[item.key for item in chunk] for chunk in chunks_of(items, 4, lambda item: item, size_of=size_of)]
    assert plain == asyncio.run(cut()) == [["0", "1"], ["2", "3"], ["4", "5"]]


def test_more_items_than_one_transaction_should_hold_are_refused() -> None:
    def endless() -> Iterator[Item]:
        while True:
            yield from source(100)

    with pytest.raises(ConfigurationError, match="more than 10,000 items in one transaction"):
        read_all("upload:42", endless())
    with pytest.raises(ConfigurationError, match="more than 10,000 items in one transaction"):
        asyncio.run(read_all_async("upload:42", endless()))
    assert len(read_all("upload:42", source(3))) == len(asyncio.run(read_all_async("upload:42", source(3)))) == 3


def test_only_items_can_be_added() -> None:
    with pytest.raises(ConfigurationError, match=r"takes items made by `task.item\(key, …\)`; this is a NewJob"):
        ItemFeed(a_batch()).prepare(source(1)[0].job)  # type: ignore[arg-type]


def keys_left(feed: ItemFeed, items: list[Item]) -> list[str | None]:
    step = feed.next([feed.prepare(item) for item in items])
    return [] if step is None else [job.item_key for job in step[0]]


def test_items_before_the_cursor_are_skipped() -> None:
    feed = ItemFeed(a_batch(position=3, cursor_key="f2"), resumes=True)

    assert keys_left(feed, source(6)[:2]) == []
    assert keys_left(feed, source(6)[2:5]) == ["f3", "f4"]
    assert keys_left(feed, source(6)[5:]) == ["f5"]
    feed.end()


def test_a_resumer_skips_ahead_to_where_another_is() -> None:
    feed = ItemFeed(a_batch(), resumes=True)
    assert keys_left(feed, source(8)[:2]) == ["f0", "f1"]

    feed.note(Added(0, Cursor(5, "f4")))

    assert keys_left(feed, source(8)[2:4]) == []
    assert keys_left(feed, source(8)[4:6]) == ["f5"]


def test_a_rest_begins_at_the_cursor() -> None:
    feed = ItemFeed(a_batch(position=3, cursor_key="f2"), position=3, resumes=True)

    assert keys_left(feed, source(5)[3:]) == ["f3", "f4"]


def test_another_source_is_not_resumed() -> None:
    feed = ItemFeed(a_batch(position=2, cursor_key="other"), resumes=True)

    with pytest.raises(
        SourceMismatch, match="stopped after item 2 of its source, 'other', but in this source that item is 'f1'"
    ):
        feed.next([feed.prepare(item) for item in source(3)])


def test_a_source_that_ends_too_soon_is_not_resumed() -> None:
    feed = ItemFeed(a_batch(position=5, cursor_key="f4"), resumes=True)
    assert keys_left(feed, source(3)) == []

    with pytest.raises(SourceMismatch, match="this source ends before that"):
        feed.end()


def test_adding_compares_keys_and_ignores_the_cursor() -> None:
    feed = ItemFeed(a_batch(position=5, cursor_key="other"))

    assert keys_left(feed, source(3)) == ["f0", "f1", "f2"]
    feed.end()


def test_an_item_has_the_same_id_whenever_it_is_asked_for() -> None:
    batch_id = new_id()

    assert item_id(batch_id, "a/7.wav") == item_id(batch_id, "a/7.wav")
    assert item_id(batch_id, "a/7.wav") != item_id(new_id(), "a/7.wav")
    assert UUID(item_id(batch_id, "a/7.wav")).version == 8


def test_items_with_the_same_number_or_none_have_different_ids() -> None:
    batch_id = new_id()
    keys = [f"{one}{other}{end}" for one in ascii_letters for other in ascii_letters for end in ("", "7", "9" * 100)]

    assert len({item_id(batch_id, key) for key in keys}) == len(keys)


def test_items_added_together_have_neighbouring_ids() -> None:
    batch_id = new_id()
    ids = [item_id(batch_id, f"upload/{number:06}.wav") for number in range(500_000, 501_024)]

    strangers = [item_id(batch_id, f"upload/{number:06}.wav") for number in range(0, 500_000, 1000)]
    assert not [one for one in strangers if min(ids) < one < max(ids)]
    first, last = id_range(batch_id)
    assert first < min(ids) < max(ids) < last
