"""Groups bounded in number and in bytes, so that items written, read, published or held together fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["GROUP_BYTES", "ReadSize", "first_group", "groups_of", "halves"]

T = TypeVar("T")

GROUP_BYTES = 4 * 1024 * 1024
"""Most bytes to write in one transaction or publish at once; more would not be faster."""
SMOOTHING = 0.3
GROWTH = 4


def groups_of(
    items: Iterable[T], *, size: Callable[[T], int], most: int, most_bytes: int = GROUP_BYTES
) -> Iterator[list[T]]:
    """Split items into groups, in order. An item larger than `most_bytes` forms a group by itself."""
    group: list[T] = []
    total = 0
    for item in items:
        weight = size(item)
        if group and total + weight > most_bytes:
            yield group
            group, total = [], 0
        group.append(item)
        total += weight
        if len(group) >= most:  # do not wait for the next item, which may take long
            yield group
            group, total = [], 0
    if group:
        yield group


def first_group(
    items: Sequence[T], *, size: Callable[[T], int], most: int, most_bytes: int = GROUP_BYTES
) -> Sequence[T]:
    """Return the first group of `groups_of`."""
    return next(groups_of(items[:most], size=size, most=most, most_bytes=most_bytes), [])


def halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Split a group in two, to find the item that makes the group fail."""
    middle = len(items) // 2
    return items[:middle], items[middle:]


class ReadSize:
    """Computes how many items to read so that they fit into `most_bytes`, from the sizes of previous items.

    Sizes are unknown before items are read. So the first portion is small, each may be a few times as large as those
    that fitted before, and larger sizes take effect at once, smaller ones slowly.
    """

    def __init__(self, *, most: int, most_bytes: int, first: int) -> None:
        self.bytes_each = 0.0
        """Expected size of an item."""
        self._most = most
        self._most_bytes = most_bytes
        self._trusted = first

    def next(self, held_bytes: int = 0) -> int:
        """The number of items to read while `held_bytes` are already held; at least one."""
        fitting = (self._most_bytes - held_bytes) / self.bytes_each if self.bytes_each else float(self._most)
        return int(max(1.0, min(fitting, self._trusted, self._most)))

    def note(self, sizes: Sequence[int]) -> None:
        """Adapt to the sizes of the items read."""
        if not sizes:
            return
        mean = sum(sizes) / len(sizes)
        self.bytes_each = max(mean, self.bytes_each + SMOOTHING * (mean - self.bytes_each))
        self._trusted = min(self._most, max(self._trusted, GROWTH * len(sizes)))
