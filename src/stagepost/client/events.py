"""Reads events: numbers those that were committed since, then reads a page."""

from __future__ import annotations

from stagepost.client.procedures import Procedure
from stagepost.errors import ConfigurationError
from stagepost.events import Event
from stagepost.model.backoff import backoff_seconds
from stagepost.store.events import Stream, number_events, read_events, stream

__all__ = ["PAGE", "Follower", "last_number", "page_of_events"]

PAGE = 1000
"""Number of events that are read at once."""
FIRST_SECONDS = 0.02
LONGEST_SECONDS = 1.0


def page_of_events(after: int | None, limit: int) -> Procedure[list[Event]]:
    """Read up to `limit` events, at most a page. Fewer than that means that there were no more."""
    if after is not None and after < 0:
        raise ConfigurationError(f"after is {after}: it must be the number of an event, or 0 for the first.")
    limit = max(1, min(limit, PAGE))
    found: Stream = yield stream()
    start = found.pruned if after is None else after
    if found.is_behind and found.last < start + limit:
        yield number_events(most=PAGE)  # every row has at least one event
    events: list[Event] = yield read_events(after=after, most=limit)
    return events


def last_number() -> Procedure[int]:
    """Number all committed events and return the last number; 0 before the first event."""
    found: Stream = yield stream()
    while found.is_behind:
        yield number_events(most=PAGE)
        found = yield stream()
    return found.last


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
