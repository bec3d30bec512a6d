"""Wake-ups: hints that there may be work. Polling stays underneath and finds every job without them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from stagepost.config import Settings
from stagepost.transport.postgres import PostgresWakeups
from stagepost.transport.sqlite import SqliteWakeups

__all__ = ["DoorbellWakeups", "SeveralWakeups", "Wakeups", "wakeups_for"]


class Wakeups(Protocol):
    """A source of hints, which may come late, twice, for nothing, or not at all."""

    def start(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, whenever there may be work; returns at once, whatever the database does."""

    def stop(self) -> None:
        """Call it no more; waits a moment for threads to end."""

    @property
    def is_hearing(self) -> bool:
        """Whether a hint that was sent now would arrive, as far as is known; for health pages, not for decisions."""


class Doorbell(Protocol):
    """What a store rings after this process's own enqueues."""

    def answer(self, answer: Callable[[Collection[str]], None]) -> None: ...

    def ignore(self, answer: Callable[[Collection[str]], None]) -> None: ...


class Source(Protocol):
    """What is asked of a store: where its database is, and its doorbell."""

    @property
    def database(self) -> Any: ...

    @property
    def doorbell(self) -> Doorbell: ...


def wakeups_for(store: Source, settings: Settings, *, queues: Collection[str]) -> Wakeups:
    """Choose what this database can do; every one has the hints of its own process."""
    if not settings.wakeups:
        return SeveralWakeups([])
    database = store.database
    sources: list[Wakeups] = [DoorbellWakeups(store.doorbell, queues)]
    match database.dialect.name:
        case "postgres":
            sources.append(PostgresWakeups(database.connect, queues))
        case "sqlite" if not database.is_memory:
            sources.append(SqliteWakeups(database.connect))
        case _:
            pass  # MySQL and MariaDB cannot tell, and nobody else can see a database in memory
    return SeveralWakeups(sources)


class DoorbellWakeups:
    """Hears what this process itself enqueues."""

    is_hearing = True

    def __init__(self, doorbell: Doorbell, queues: Collection[str]) -> None:
        self._doorbell = doorbell
        self._queues = frozenset(queues)
        self._wake: Callable[[], None] = lambda: None

    def start(self, wake: Callable[[], None]) -> None:
        """Answer the bell from now on."""
        self._wake = wake
        self._doorbell.answer(self._answer)

    def stop(self) -> None:
        """Answer no more."""
        self._doorbell.ignore(self._answer)

    def _answer(self, queues: Collection[str]) -> None:
        if not self._queues.isdisjoint(queues):
            self._wake()


class SeveralWakeups:
    """Hears through all of its sources."""

    def __init__(self, sources: Sequence[Wakeups]) -> None:
        self.sources = tuple(sources)

    def start(self, wake: Callable[[], None]) -> None:
        """Start all of them."""
        for source in self.sources:
            source.start(wake)

    def stop(self) -> None:
        """Stop all of them."""
        for source in self.sources:
            source.stop()

    @property
    def is_hearing(self) -> bool:
        """Whether there is a source and none of them is deaf."""
        return bool(self.sources) and all(source.is_hearing for source in self.sources)
