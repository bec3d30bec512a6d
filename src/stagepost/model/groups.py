"""Groups bounded in number and in bytes: what is written, read, published or held together must fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["GROUP_BYTES", "Portion", "first_group", "groups_of", "halves"]

T = TypeVar("T")

GROUP_BYTES = 4 * 1024 * 1024
"""How much is written in one transaction or published at once: large enough that more would not be faster."""
SMOOTHING = 0.3
GROWTH = 4


def groups_of(
    items: Iterable[T], *, size: Callable[[T], int], most: int, most_bytes: int = GROUP_BYTES
) -> Iterator[list[T]]:
    """Cut items into runs, in their order; an item that is larger than `most_bytes` is a run of its own."""
    group: list[T] = []
    total = 0
    for item in items:
        weight = size(item)
        if group and total + weight > most_bytes:
            yield group
            group, total = [], 0
        group.append(item)
        total += weight
        if len(group) >= most:  # at once: the next item may be long in coming
            yield group
            group, total = [], 0
    if group:
        yield group


def first_group(
    items: Sequence[T], *, size: Callable[[T], int], most: int, most_bytes: int = GROUP_BYTES
) -> Sequence[T]:
    """Take the first run of `groups_of`."""
    return next(groups_of(items[:most], size=size, most=most, most_bytes=most_bytes), [])


def halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Cut a group in two, to find the item that makes all of it fail."""
    middle = len(items) // 2
    return items[:middle], items[middle:]


class Portion:
    """How many items to ask for, so that what comes fits into so many bytes; learns their size from what came.

    Sizes are unknown before they are read. So the first portion is small, each may be a few times as large as what
    has fitted before, and an increase in size counts at once, a decrease slowly.
    """

    def __init__(self, *, most: int, most_bytes: int, first: int) -> None:
        self.bytes_each = 0.0
        """What an item is expected to take."""
        self._most = most
        self._most_bytes = most_bytes
        self._trusted = first

    def next(self, held_bytes: int = 0) -> int:
        """How many to ask for while so much is held already; at least one."""
        fitting = (self._most_bytes - held_bytes) / self.bytes_each if self.bytes_each else float(self._most)
        return int(max(1.0, min(fitting, self._trusted, self._most)))

    def note(self, sizes: Sequence[int]) -> None:
        """Learn from what came."""
        if not sizes:
            return
        mean = sum(sizes) / len(sizes)
        self.bytes_each = max(mean, self.bytes_each + SMOOTHING * (mean - self.bytes_each))
        self._trusted = min(self._most, max(self._trusted, GROWTH * len(sizes)))
