"""Adds the chunks of a source to a batch: builds the next chunk while one is being committed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from threading import Event
from typing import TYPE_CHECKING

from stagepost.client.item_feed import ItemFeed, chunks_of, chunks_of_async
from stagepost.model.batch import Item
from stagepost.model.job import NewJob
from stagepost.store.batches import Added

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["load", "load_async"]


def load(app: App, feed: ItemFeed, source: Iterable[Item], *, chunk: int) -> int:
    """Add all items of a source; returns how many were new.

    The caller's thread reads the source, and another thread commits. If either fails, the other stops too: a commit
    in progress is completed, and committed chunks stay. Reading continues only after the driver has taken all rows of
    a chunk, because two busy Python threads would slow each other down while the database is idle.
    """
    flying: tuple[Sequence[NewJob], Future[Added]] | None = None
    try:
        for items in chunks_of(source, chunk, feed.prepare, size_of=feed.size_of):
            if flying is not None:
                _land(app, feed, flying[0], flying[1].result())
                flying = None
            is_taken = Event()
            if step := feed.next(items, on_taken=is_taken.set):
                flying = step[0], app.store.start(step[1])
                _await_taken(is_taken, flying[1])
        if flying is not None:
            _land(app, feed, flying[0], flying[1].result())
    finally:
        if flying is not None:
            wait([flying[1]])
    feed.end()
    return feed.new


async def load_async(app: App, feed: ItemFeed, source: Iterable[Item] | AsyncIterable[Item], *, chunk: int) -> int:
    """Add all items like `load`, without blocking the event loop; a task commits."""
    flying: tuple[Sequence[NewJob], asyncio.Task[Added]] | None = None
    try:
        async for items in chunks_of_async(source, chunk, feed.prepare, size_of=feed.size_of):
            if flying is not None:
                _land(app, feed, flying[0], await flying[1])
            step = feed.next(items)
            flying = None if step is None else (step[0], asyncio.create_task(app.async_store.run(step[1])))
        if flying is not None:
            _land(app, feed, flying[0], await flying[1])
    finally:
        if flying is not None:
            await asyncio.gather(flying[1], return_exceptions=True)
    feed.end()
    return feed.new


def _await_taken(is_taken: Event, attempt: Future[Added]) -> None:
    """Wait until the driver has taken all rows, or the commit has ended."""
    attempt.add_done_callback(lambda _: is_taken.set())
    is_taken.wait()


def _land(app: App, feed: ItemFeed, jobs: Sequence[NewJob], added: Added) -> None:
    """Record that a chunk is committed, and wake idle workers."""
    feed.note(added)
    if added.new:
        app.waker.wake(jobs, None)
        app.counts.note_submitted(_by_task(jobs, added.new))


def _by_task(jobs: Sequence[NewJob], new: int) -> Mapping[str, int]:
    """Count new items by task. If only some are new, and not all of one task, the most frequent task gets them all."""
    tasks = Counter(job.task_name for job in jobs)
    return tasks if new == len(jobs) else {tasks.most_common(1)[0][0]: new}
