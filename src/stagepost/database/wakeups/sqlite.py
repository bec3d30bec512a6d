"""Wake-ups from a SQLite file: polls a number that changes with every commit of another connection."""

from __future__ import annotations

from collections.abc import Callable

from stagepost.database.connection import Connection
from stagepost.database.wakeups.listener import Listener

__all__ = ["SqliteWakeups"]

LOOK_SECONDS = 0.025
"""A check takes a few microseconds: the number is in shared memory, so no file is read."""


class SqliteWakeups(Listener):
    """Checks `pragma data_version` forty times a second. A worker's own commit causes one needless wake-up."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        super().__init__(connect, name="stagepost-data-version")

    def _listen(self, connection: Connection) -> float:
        connection.execute("pragma query_only = on", {})
        seen = _version(connection)
        self._hears()
        while not self._stopping.wait(LOOK_SECONDS):
            version = _version(connection)
            if version != seen:
                seen = version
                self._wake()
        return 0.0


def _version(connection: Connection) -> int:
    [(version,)] = connection.execute("pragma data_version", {})
    return int(version)
