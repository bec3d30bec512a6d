"""Reads events the way clients do: number what is new, then read."""

from __future__ import annotations

from stagepost.events import Event
from stagepost.store.events import number_events, read_events
from tests.conformance.bench import Bench


def number(store: Bench, *, most: int = 1000) -> None:
    """Give every committed event its number."""
    while store.run(number_events(most=most)) == most:
        pass


def read(store: Bench, *, after: int | None = None, most: int = 1000) -> list[Event]:
    """Number what is new, then read a page."""
    number(store)
    return store.run(read_events(after=after, most=most))
