"""Splits a source of items into chunks and skips stored items; independent of threads and event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from stagepost.database.statement import Operation
from stagepost.errors import ConfigurationError, SourceMismatch
from stagepost.model.batch import BatchRow, Cursor, Item
from stagepost.model.groups import GROUP_BYTES
from stagepost.model.job import NewJob
from stagepost.model.option_types import check_type
from stagepost.store.batches import Added, add_jobs

__all__ = [
    "CHUNK",
    "MOST_IN_TRANSACTION",
    "ItemFeed",
    "check_chunk",
    "chunks_of",
    "chunks_of_async",
    "read_all",
    "read_all_async",
]

T = TypeVar("T")

CHUNK = 5000
MOST_IN_CHUNK = 20_000
MOST_IN_TRANSACTION = 10_000
PLAIN_AT_ONCE = 200
"""Number of items to read from a plain iterable before other coroutines may run."""


class ItemFeed:
    """Prepares the chunks of a source for the store, in order, and counts new items.

    When it resumes, it skips the items before the batch's cursor, even if another producer moves the cursor in the
    meantime. When it adds, it ignores the cursor: existing items are recognised by their keys.
    """

    def __init__(self, batch: BatchRow, *, position: int = 0, resumes: bool = False, notify: bool = False) -> None:
        self.new = 0
        self._batch = batch
        self._position = position
        """Number of items read from the source."""
        self._resumes = resumes
        self._cursor = batch.cursor if resumes else Cursor()
        # After other items, a position in this source is not one in the batch: the cursor then moves by the new items.
        self._moves_cursor = resumes or batch.position == 0
        self._notify = notify

    @staticmethod
    def size_of(job: NewJob) -> int:
        """Return how many bytes a job adds to its chunk."""
        return len(job.payload)

    def prepare(self, item: Item) -> NewJob:
        """Convert the source's next item to a job; the previous chunk may not be committed yet."""
        return checked(self._batch.key, item).in_batch(self._batch.id)

    def next(
        self, items: Sequence[NewJob], *, on_taken: Callable[[], None] = lambda: None
    ) -> tuple[Sequence[NewJob], Operation[Added]] | None:
        """Skip stored items; returns the rest and the operation that adds them, or None if nothing is left.

        `on_taken` is called when the driver has taken all rows and only the database has work left.
        """
        left = self._left(items)
        if not left:
            return None
        cursor = Cursor(self._position, left[-1].item_key) if self._moves_cursor else None
        return left, add_jobs(self._batch.id, left, cursor=cursor, notify=self._notify, on_taken=on_taken)

    def note(self, added: Added) -> None:
        """Record the result of a chunk; must be called before the next one is prepared for the store."""
        self.new += added.new
        if self._resumes:
            self._cursor = added.cursor

    def end(self) -> None:
        """Finish; raises SourceMismatch if the source ended before the batch's cursor."""
        if self._position < self._cursor.position:
            raise SourceMismatch(self._batch.key, self._cursor.position, self._cursor.key, None)

    def _left(self, items: Sequence[NewJob]) -> Sequence[NewJob]:
        start, self._position = self._position, self._position + len(items)
        known = min(max(self._cursor.position - start, 0), len(items))
        if known and start + known == self._cursor.position and items[known - 1].item_key != self._cursor.key:
            raise SourceMismatch(self._batch.key, self._cursor.position, self._cursor.key, items[known - 1].item_key)
        return items[known:]


def check_chunk(size: int) -> None:
    """Refuse a chunk size that is too large for one transaction."""
    check_type("chunk", size, int)
    if not 1 <= size <= MOST_IN_CHUNK:
        raise ConfigurationError(f"chunk is {size:,}: it must be between 1 and {MOST_IN_CHUNK:,}.")


def read_all(key: str, items: Iterable[Item]) -> list[Item]:
    """Read all items for one transaction of the caller; raises ConfigurationError if there are too many."""
    for taken in chunks_of(items, MOST_IN_TRANSACTION + 1, partial(checked, key)):
        return _checked_number(key, taken)
    return []


async def read_all_async(key: str, items: Iterable[Item] | AsyncIterable[Item]) -> list[Item]:
    """Read all items like `read_all`, from a plain or an async iterable."""
    async for taken in chunks_of_async(items, MOST_IN_TRANSACTION + 1, partial(checked, key)):
        return _checked_number(key, taken)
    return []


def _checked_number(key: str, taken: list[Item]) -> list[Item]:
    if len(taken) > MOST_IN_TRANSACTION:
        raise ConfigurationError(
            f"batch {key!r}: more than {MOST_IN_TRANSACTION:,} items in one transaction. "
            f"Add them without `tx`, which commits them chunk by chunk."
        )
    return taken


def chunks_of(
    source: Iterable[Item], size: int, prepare: Callable[[Item], T], *, size_of: Callable[[T], int] = lambda _: 0
) -> Iterator[list[T]]:
    """Split a source into lists of at most `size` items, fewer if they are large; each is prepared when read."""
    chunks = Chunks(size, size_of)
    for item in map(prepare, source):
        if chunk := chunks.put(item):
            yield chunk
    if chunks.rest:
        yield chunks.rest


async def chunks_of_async(
    source: Iterable[Item] | AsyncIterable[Item],
    size: int,
    prepare: Callable[[Item], T],
    *,
    size_of: Callable[[T], int] = lambda _: 0,
) -> AsyncIterator[list[T]]:
    """Split like `chunks_of`, from a plain or an async iterable."""
    chunks = Chunks(size, size_of)
    if isinstance(source, AsyncIterable):
        async for item in source:
            if chunk := chunks.put(prepare(item)):
                yield chunk
    else:
        for position, prepared in enumerate(map(prepare, source), 1):
            if chunk := chunks.put(prepared):
                yield chunk
            if position % PLAIN_AT_ONCE == 0:
                await asyncio.sleep(0)
    if chunks.rest:
        yield chunks.rest


class Chunks(Generic[T]):
    """Collects items until they are a chunk, by their number or their weight in bytes."""

    def __init__(self, size: int, size_of: Callable[[T], int]) -> None:
        self.rest: list[T] = []
        self._size, self._size_of = size, size_of
        self._bytes = 0

    def put(self, item: T) -> list[T] | None:
        """Take an item; returns the chunk that it completes."""
        self.rest.append(item)
        self._bytes += self._size_of(item)
        if len(self.rest) < self._size and self._bytes < GROUP_BYTES:
            return None
        chunk, self.rest, self._bytes = self.rest, [], 0
        return chunk


def checked(key: str, item: Item) -> Item:
    """Raise ConfigurationError unless the object is an item of a batch."""
    if type(item) is not Item:
        raise ConfigurationError(
            f"batch {key!r} takes items made by `task.item(key, …)`; this is a {type(item).__name__}."
        )
    return item
