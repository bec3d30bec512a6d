"""Base class of threads that listen for wake-ups and reconnect when the connection breaks."""

from __future__ import annotations

import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from stagepost.database.connection import Connection
from stagepost.model.backoff import backoff_seconds

__all__ = ["Listener"]

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0
STOP_SECONDS = 2.0


class Listener(ABC):
    """Listens in a daemon thread on its own connection; its failures never affect running jobs."""

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
        """Whether wake-ups currently arrive."""
        return self._is_hearing

    def start(self, wake: Callable[[], None]) -> None:
        """Start the thread, which calls `wake` for every hint."""
        self._wake = wake
        self._thread.start()

    def stop(self) -> None:
        """Interrupt the thread, and wait briefly for it to end."""
        self._stopping.set()
        if (connection := self._connection) is not None:
            with contextlib.suppress(Exception):  # the thread may be closing it concurrently
                connection.abort()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    @abstractmethod
    def _listen(self, connection: Connection) -> float:
        """Listen until stopped or until wake-ups no longer arrive; returns the seconds to wait before reconnecting."""

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                pause = self._connect_and_listen()
            except Exception as error:  # noqa: BLE001 - whatever it is, jobs are found by polling and we try again
                self._failures += 1
                pause = backoff_seconds(self._failures, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
                if not self._stopping.is_set():
                    self._is_deaf(f"the connection was lost ({' '.join(str(error).split())}); reconnecting")
        self._is_hearing = False

    def _connect_and_listen(self) -> float:
        connection = self._open()
        self._connection = connection
        try:
            # The thread was stopped while it was connecting, when there was no connection to interrupt.
            return 0.0 if self._stopping.is_set() else self._listen(connection)
        finally:
            self._connection = None
            connection.close()

    def _hears(self) -> None:
        """Record that wake-ups arrive, and wake once for jobs that were missed."""
        if self._complaint is not None:
            log.info("wake-ups arrive again")
        self._is_hearing, self._failures, self._complaint = True, 0, None
        self._wake()

    def _is_deaf(self, complaint: str) -> None:
        """Record that no wake-ups arrive; logs once until they arrive again."""
        if self._complaint is None:
            log.warning("no wake-ups: %s. Jobs are found by polling meanwhile.", complaint)
        self._is_hearing, self._complaint = False, complaint
