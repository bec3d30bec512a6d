"""Wake-ups: hints that there may be work. Polling continues and finds every job without them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from stagepost.config import Settings
from stagepost.database import Store
from stagepost.database.local_notifier import LocalNotifier
from stagepost.database.wakeups.postgres import PostgresWakeups
from stagepost.database.wakeups.sqlite import SqliteWakeups

__all__ = ["LocalWakeups", "SeveralWakeups", "Wakeups", "wakeups_for"]


class Wakeups(Protocol):
    """A source of hints, which may be late, duplicated, needless or missing."""

    def start(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, whenever there may be work; returns at once, even if the database is down."""

    def stop(self) -> None:
        """Stop calling `wake`; waits briefly for threads to end."""

    @property
    def is_hearing(self) -> bool:
        """Whether a hint sent now would probably arrive; for display, not for decisions."""


def wakeups_for(store: Store, settings: Settings, *, queues: Collection[str]) -> Wakeups:
    """Choose the wake-ups that this database supports; hints from this process always work."""
    if not settings.wakeups:
        return SeveralWakeups([])
    database = store.database
    sources: list[Wakeups] = [LocalWakeups(store.notifier, queues)]
    match database.dialect.name:
        case "postgres":
            sources.append(PostgresWakeups(database.connect, queues))
        case "sqlite" if not database.is_memory:
            sources.append(SqliteWakeups(database.connect))
        case _:
            pass  # MySQL and MariaDB have no notifications, and a database in memory has no other users
    return SeveralWakeups(sources)


class LocalWakeups:
    """Wakes for jobs that this process enqueues."""

    is_hearing = True

    def __init__(self, notifier: LocalNotifier, queues: Collection[str]) -> None:
        self._notifier = notifier
        self._queues = frozenset(queues)
        self._wake: Callable[[], None] = lambda: None

    def start(self, wake: Callable[[], None]) -> None:
        """Subscribe to enqueues of this process."""
        self._wake = wake
        self._notifier.subscribe(self._answer)

    def stop(self) -> None:
        """Unsubscribe."""
        self._notifier.unsubscribe(self._answer)

    def _answer(self, queues: Collection[str]) -> None:
        if not self._queues.isdisjoint(queues):
            self._wake()


class SeveralWakeups:
    """Combines several sources of wake-ups."""

    def __init__(self, sources: Sequence[Wakeups]) -> None:
        self.sources = tuple(sources)

    def start(self, wake: Callable[[], None]) -> None:
        """Start all sources."""
        for source in self.sources:
            source.start(wake)

    def stop(self) -> None:
        """Stop all sources."""
        for source in self.sources:
            source.stop()

    @property
    def is_hearing(self) -> bool:
        """Whether there is a source and all sources work."""
        return bool(self.sources) and all(source.is_hearing for source in self.sources)
