"""Adds the chunks of a source: while one is being committed, the next is being built."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING

from stagepost.client.feed import Feed, chunks_of, chunks_of_async
from stagepost.model.batch import Item
from stagepost.model.job import NewJob
from stagepost.store.batches import Added

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["load", "load_async"]


def load(app: App, feed: Feed, source: Iterable[Item], *, chunk: int) -> int:
    """Add all of a source; returns how many items were new.

    The source is read in the caller's thread, commits are made in another. Whatever ends the one, the other ends
    too: a commit under way is waited for, and what is committed stays. The source is read on when a chunk's rows have
    all been handed over: two threads of Python at once would only get into each other's way, while the database waits.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="stagepost-batch") as thread:
        flying: tuple[Sequence[NewJob], Future[Added]] | None = None
        for items in chunks_of(source, chunk, feed.prepare, weigh=feed.weigh):
            if flying is not None:
                _land(app, feed, flying[0], flying[1].result())
                flying = None
            is_taken = Event()
            if step := feed.next(items, on_taken=is_taken.set):
                flying = step[0], thread.submit(app.store.run, step[1])
                _await_taken(is_taken, flying[1])
        if flying is not None:
            _land(app, feed, flying[0], flying[1].result())
    feed.end()
    return feed.new


async def load_async(app: App, feed: Feed, source: Iterable[Item] | AsyncIterable[Item], *, chunk: int) -> int:
    """Do the same without blocking the loop; commits are made in a task."""
    flying: tuple[Sequence[NewJob], asyncio.Task[Added]] | None = None
    try:
        async for items in chunks_of_async(source, chunk, feed.prepare, weigh=feed.weigh):
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


def _await_taken(is_taken: Event, flight: Future[Added]) -> None:
    """Wait until rows have been handed over, or there is nothing more to hand over."""
    flight.add_done_callback(lambda _: is_taken.set())
    is_taken.wait()


def _land(app: App, feed: Feed, jobs: Sequence[NewJob], added: Added) -> None:
    """Take in that a chunk is committed, and tell workers that wait."""
    feed.note(added)
    if added.new:
        app.hints.ring(jobs, None)
