"""Groups bounded in number and in bytes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stagepost.model.groups import ReadSize, first_group, groups_of, halves

SIZES = st.lists(st.integers(0, 50), max_size=60)
MOST = st.integers(1, 20)
MOST_BYTES = st.integers(1, 100)


def own(size: int) -> int:
    return size


@given(sizes=SIZES, most=MOST, most_bytes=MOST_BYTES)
def test_groups_have_all_items_in_their_order_and_keep_both_bounds(
    sizes: list[int], most: int, most_bytes: int
) -> None:
    groups = list(groups_of(sizes, size=own, most=most, most_bytes=most_bytes))

    assert [size for group in groups for size in group] == sizes
    assert all(1 <= len(group) <= most for group in groups)
    assert all(sum(group) <= most_bytes for group in groups if len(group) > 1)


@given(sizes=SIZES, most=MOST, most_bytes=MOST_BYTES)
def test_no_group_could_take_the_first_item_of_the_next(sizes: list[int], most: int, most_bytes: int) -> None:
    groups = list(groups_of(sizes, size=own, most=most, most_bytes=most_bytes))

    for group, following in pairwise(groups):
        assert len(group) == most or sum(group) + following[0] > most_bytes


@given(sizes=SIZES, most=MOST, most_bytes=MOST_BYTES)
def test_the_first_group_is_the_first_of_all(sizes: list[int], most: int, most_bytes: int) -> None:
    groups = list(groups_of(sizes, size=own, most=most, most_bytes=most_bytes))

    assert list(first_group(sizes, size=own, most=most, most_bytes=most_bytes)) == (groups[0] if groups else [])


@given(items=st.lists(st.integers(), min_size=2))
def test_halves_are_both_smaller_and_have_all_items(items: list[int]) -> None:
    first, second = halves(items)

    assert [*first, *second] == items
    assert 0 <= len(second) - len(first) <= 1


@given(size=st.integers(1, 10_000), held=st.integers(0, 2_000_000), rounds=st.integers(1, 10))
def test_a_portion_fits_once_sizes_are_known(size: int, held: int, rounds: int) -> None:
    portion = ReadSize(most=1000, most_bytes=1_000_000, first=10)

    for _ in range(rounds):
        portion.note([size] * portion.next(held))

    assert 1 <= portion.next(held) <= 1000
    assert portion.next(held) == 1 or portion.next(held) * size + held <= 1_000_000


@given(asked=st.lists(st.integers(0, 1000), max_size=10))
def test_a_portion_grows_only_with_the_number_of_items_received(asked: list[int]) -> None:
    portion = ReadSize(most=1000, most_bytes=1_000_000, first=10)

    for number in asked:
        portion.note([1] * number)

    assert portion.next() <= max([10, *(4 * number for number in asked)])


def test_larger_items_count_at_once_and_smaller_ones_slowly() -> None:
    portion = ReadSize(most=10_000, most_bytes=1_000_000, first=10_000)
    portion.note([100] * 100)
    portion.note([10_000] * 100)
    assert portion.next() == 100

    portion.note([100] * 100)

    assert 100 < portion.next() < 1000
