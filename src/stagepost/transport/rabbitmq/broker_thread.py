"""Base class of threads that keep a connection to a broker and reconnect when it breaks."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from stagepost.errors import BrokerUnavailable, TransportError
from stagepost.loops.failure_log import FailureLog
from stagepost.model.backoff import backoff_seconds
from stagepost.transport.rabbitmq.address import parameters_of
from stagepost.transport.rabbitmq.admin import unavailable
from stagepost.transport.rabbitmq.wire import connection_type, read_large_pieces

__all__ = ["BrokerThread"]

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
STOP_SECONDS = 5.0
CLOSE_SECONDS = 2.0
"""How long to wait for the broker to confirm closing; a half-open connection never does."""


class BrokerThread(ABC):
    """A connection that a daemon thread keeps open; everything on it happens in that thread's event loop."""

    def __init__(self, url: str, *, name: str, prepare: Callable[[], None] = lambda: None) -> None:
        self._url = url
        self._prepare = prepare
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stopping = threading.Event()
        self._connection: Any = None
        self._failures = 0
        self._why: TransportError | None = None
        self.on_working: Callable[[], None] = lambda: None
        """Called in this thread whenever the connection begins to work; set it before `start`."""
        self.failure_log = FailureLog()
        """Where it reports why it cannot be used. The loop that owns it may replace it before the start."""
        self.trouble: str | None = "not connected yet"
        """Why the connection does not work at the moment; None while it does."""

    def start(self) -> None:
        """Connect in a thread; returns at once, even if the broker is down."""
        self._thread.start()

    def stop(self) -> None:
        """Close the connection and wait briefly for the thread to end."""
        self._stopping.set()
        self._later(self._close)
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    @abstractmethod
    def _opened(self, connection: Any) -> None:
        """Start to use a new connection; called in this thread."""

    @abstractmethod
    def _lost(self) -> None:
        """Abandon unfinished work because the connection is lost; called in this thread."""

    def _later(self, function: Callable[[], None]) -> bool:
        """Schedule a call in this thread, from any thread; returns whether the call can run."""
        connection = self._connection
        if connection is None:
            return False
        try:
            connection.ioloop.add_callback_threadsafe(function)
        except Exception:  # noqa: BLE001 - its loop has ended meanwhile
            return False
        return True

    def _works(self) -> None:
        """Record that the connection works."""
        self.trouble, self._failures = None, 0
        self.failure_log.worked(self._thread.name)
        self.on_working()

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                self._prepare()
                self._live()
                why = self._why or BrokerUnavailable("the connection was closed")
            except TransportError as error:
                why = error
            except Exception as error:  # noqa: BLE001 - whatever it is, the database has the jobs and we try again
                why = unavailable(self._url, error)
            self._failures += 1
            self.trouble = str(why)
            if not self._stopping.is_set():
                self.failure_log.failed(self._thread.name, why, note="Jobs wait in the database meanwhile.")
            pause = backoff_seconds(self._failures, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)

    def _live(self) -> None:
        """Run one connection until it ends."""
        self._why = None
        connection = connection_type()(
            parameters_of(self._url),
            on_open_callback=self._begin,
            on_open_error_callback=self._ended,
            on_close_callback=self._ended,
        )
        self._connection = connection
        try:
            if not self._stopping.is_set():
                connection.ioloop.start()
        finally:
            self._connection = None
            self._lost()
            _drop(connection)

    def _begin(self, connection: Any) -> None:
        read_large_pieces(connection)
        self._opened(connection)

    def _ended(self, connection: Any, error: object) -> None:
        if self._why is None:
            cause = error if isinstance(error, BaseException) else Exception(error)
            self._why = unavailable(self._url, cause)
        self.trouble = str(self._why)
        connection.ioloop.stop()

    def _close(self) -> None:
        connection = self._connection
        if connection is None:
            return
        connection.ioloop.call_later(CLOSE_SECONDS, connection.ioloop.stop)
        if not (connection.is_closing or connection.is_closed):
            connection.close()

    def _break_off(self, reason: str) -> None:
        """Close a connection that no longer works, so that the thread reconnects."""
        if self._why is None:
            self._why, self.trouble = TransportError(reason), reason
            self._close()


def _drop(connection: Any) -> None:
    """Close the socket and the event loop; the driver has no public way to close without the broker's reply."""
    with contextlib.suppress(Exception):
        if connection._transport is not None:  # noqa: SLF001
            connection._transport.abort()  # noqa: SLF001
            connection.ioloop.call_later(0, connection.ioloop.stop)
            connection.ioloop.start()  # the transport closes in the next iteration of the loop
    with contextlib.suppress(Exception):
        connection.ioloop.close()
