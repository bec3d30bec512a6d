"""The events of an app: pages, and an iterator that follows the stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from stagepost.client.arguments import page_size
from stagepost.client.procedures import Procedure, run_procedure, run_procedure_async
from stagepost.clock import sleep
from stagepost.errors import ConfigurationError
from stagepost.events import Event
from stagepost.model.backoff import backoff_seconds
from stagepost.model.option_types import check_type
from stagepost.store.events import Stream, number_events, read_events, stream

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["PAGE", "Events", "Follower"]

PAGE = 1000
"""Number of events that are read at once."""
LARGEST_NUMBER = 2**63 - 1
FIRST_SECONDS = 0.02
LONGEST_SECONDS = 1.0


class Events:
    """What happened to jobs, in the order of its numbers.

    Pass the number of the last event that you have processed as `after`. A transaction that commits late gets later
    numbers, so you cannot miss its events. `EventsPruned` means that events after `after` were deleted.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    def page(self, *, after: int | None = None, limit: int = PAGE) -> list[Event]:
        """Read up to 1,000 events in order; fewer than `limit` means that there are no more yet.

        Without `after`, the page starts with the oldest event that is stored.
        """
        return run_procedure(_page(after, limit), self._app)

    async def page_async(self, *, after: int | None = None, limit: int = PAGE) -> list[Event]:
        """Read events without blocking the event loop."""
        return await run_procedure_async(_page(after, limit), self._app)

    def follow(self, *, after: int | None = None) -> Iterator[Event]:
        """Iterate over events forever, in order, and wait for new ones."""
        follower = Follower(after)
        while True:
            page = self.page(after=follower.after)
            yield from page
            sleep(follower.pause_after(page))

    async def follow_async(self, *, after: int | None = None) -> AsyncIterator[Event]:
        """Iterate over events forever without blocking the event loop."""
        follower = Follower(after)
        while True:
            page = await self.page_async(after=follower.after)
            for event in page:
                yield event
            await asyncio.sleep(follower.pause_after(page))

    def last_number(self) -> int:
        """Return the number of the newest event, to follow only what happens next; 0 before the first event."""
        return run_procedure(_last_number(), self._app)

    async def last_number_async(self) -> int:
        """Return the number of the newest event without blocking the event loop."""
        return await run_procedure_async(_last_number(), self._app)


class Follower:
    """A cursor that follows the stream, and polls less often while nothing happens."""

    def __init__(self, after: int | None) -> None:
        self.after = after
        self._empty_pages = 0

    def pause_after(self, page: list[Event]) -> float:
        """Move the cursor behind a page that was processed; returns the seconds to wait before the next."""
        if not page:
            self._empty_pages += 1
            return backoff_seconds(self._empty_pages, first=FIRST_SECONDS, longest=LONGEST_SECONDS, factor=1.5)
        self.after = page[-1].number
        self._empty_pages = 0
        return 0.0


def _page(after: int | None, limit: int) -> Procedure[list[Event]]:
    """Number events that were committed since, if the page needs them, then read it."""
    check_type("after", after, int | None)
    if after is not None and not 0 <= after <= LARGEST_NUMBER:
        raise ConfigurationError(f"after is {after}: it must be the number of an event, or 0 for the first.")
    limit = page_size(limit, most=PAGE)
    found: Stream = yield stream()
    start = found.pruned if after is None else after
    if found.is_behind and found.last < start + limit:
        yield number_events(most=PAGE)  # every row has at least one event
    events: list[Event] = yield read_events(after=after, most=limit)
    return events


def _last_number() -> Procedure[int]:
    """Number all committed events first: the newest may not have a number yet."""
    found: Stream = yield stream()
    while found.is_behind:
        yield number_events(most=PAGE)
        found = yield stream()
    return found.last
