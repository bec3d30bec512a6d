"""The one shape of every thread that listens: connect, listen, and again when that breaks off."""

from __future__ import annotations

import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Connection", "Listener"]

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0
STOP_SECONDS = 2.0


class Connection(Protocol):
    """What is asked of a store's connection."""

    @property
    def raw(self) -> Any: ...

    def execute(self, sql: str, parameters: Any) -> list[tuple[Any, ...]]: ...

    def begin(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Listener(ABC):
    """Listens in a daemon thread on a connection of its own; nothing that happens here reaches the work itself."""

    def __init__(self, connect: Callable[[], Connection], *, name: str) -> None:
        self._open = connect
        self._wake: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stopping = threading.Event()
        self._connection: Connection | None = None
        self._is_hearing = False
        self._failures = 0
        self._complaint: str | None = None

    @property
    def is_hearing(self) -> bool:
        """Whether hints arrive at the moment."""
        return self._is_hearing

    def start(self, wake: Callable[[], None]) -> None:
        """Start the thread."""
        self._wake = wake
        self._thread.start()

    def stop(self) -> None:
        """Break off whatever the thread waits for, and wait a moment for its end."""
        self._stopping.set()
        if (connection := self._connection) is not None:
            with contextlib.suppress(Exception):  # the thread may close it at this moment
                connection.abort()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    @abstractmethod
    def _listen(self, connection: Connection) -> float:
        """Listen until stopped or deaf; returns how many seconds to wait before a new connection is tried."""

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                pause = self._connect_and_listen()
            except Exception as error:  # noqa: BLE001 - whatever it is, jobs are found by polling and we try again
                self._failures += 1
                pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 10))
                if not self._stopping.is_set():
                    self._is_deaf(f"the connection was lost ({str(error).strip()}); connecting again")
        self._is_hearing = False

    def _connect_and_listen(self) -> float:
        connection = self._open()
        self._connection = connection
        try:
            # Told to stop while connecting, when there was nothing yet to break off.
            return 0.0 if self._stopping.is_set() else self._listen(connection)
        finally:
            self._connection = None
            connection.close()

    def _hears(self) -> None:
        """Note that hints arrive; what was missed before is looked for now."""
        if self._complaint is not None:
            log.info("wake-ups arrive again")
        self._is_hearing, self._failures, self._complaint = True, 0, None
        self._wake()

    def _is_deaf(self, complaint: str) -> None:
        """Note that no hints arrive; said once until they do again."""
        if self._complaint is None:
            log.warning("no wake-ups: %s. Jobs are found by polling meanwhile.", complaint)
        self._is_hearing, self._complaint = False, complaint
