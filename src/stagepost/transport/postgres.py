"""Wake-ups from PostgreSQL: LISTEN on a connection of its own, and proof now and then that something would arrive."""

from __future__ import annotations

import contextlib
import selectors
import threading
from collections.abc import Callable, Collection, Iterator
from uuid import uuid4

from stagepost.clock import monotonic
from stagepost.transport.listener import Connection, Listener

__all__ = ["PostgresWakeups"]

PROBE_PREFIX = "?"
"""No queue's name begins so."""
PROBE_SECONDS = 5.0
PROBE_EVERY_SECONDS = 60.0
STATEMENT_SECONDS = 10.0
POOL_TRIES = 20

POOLED = (
    "this address leads to a pooler that lends one server session to many clients (PgBouncer in transaction mode), "
    "where LISTEN hears nothing; give workers a direct address, or set `wakeups = false`"
)
UNHEARD = (
    f"a notification sent to ourselves did not arrive within {PROBE_SECONDS:g} s; look for a pooler or proxy between "
    "this worker and PostgreSQL, give it a direct address, or set `wakeups = false`"
)


class PostgresWakeups(Listener):
    """Hears what `insert_jobs` sends on the channel `stagepost`: names of queues, separated by commas; none is any."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        queues: Collection[str],
        *,
        probe_seconds: float = PROBE_SECONDS,
        probe_every_seconds: float = PROBE_EVERY_SECONDS,
    ) -> None:
        super().__init__(connect, name="stagepost-listen")
        self._queues = frozenset(queues)
        self._probe_seconds = probe_seconds
        self._probe_every_seconds = probe_every_seconds

    def _listen(self, connection: Connection) -> float:
        if self._is_pooled(connection):
            self._is_deaf(POOLED)
            return self._probe_every_seconds
        with _within(STATEMENT_SECONDS, connection):
            connection.execute("listen stagepost", {})
        if not self._probe(connection):
            self._is_deaf(UNHEARD)
            with _within(STATEMENT_SECONDS, connection):
                connection.execute("unlisten *", {})
            return self._probe_every_seconds
        while not self._stopping.is_set():
            self._hears()
            for payload in _payloads(connection, self._probe_every_seconds):
                self._hint(payload)
            if not self._probe(connection):
                self._is_deaf(UNHEARD)
                break  # it heard before and has died unnoticed: another connection may do
        return 0.0

    def _is_pooled(self, connection: Connection) -> bool:
        """Say whether others get our server session: LISTEN would stay behind on it, for strangers to hear."""
        with _within(STATEMENT_SECONDS, connection):
            if _session(connection) == connection.raw.info.backend_pid:
                return False  # what answered when we connected is the server itself
        with contextlib.closing(self._open()) as other, _within(STATEMENT_SECONDS, connection, other):
            return any(_changes_hands(connection, other) for _ in range(POOL_TRIES))

    def _probe(self, connection: Connection) -> bool:
        """Send ourselves a word that nobody else knows, and say whether it came.

        Through another connection: a pooler may well hand us our own notification, and no one else's.
        """
        word = f"{PROBE_PREFIX}{uuid4()}"
        with contextlib.closing(self._open()) as other, _within(STATEMENT_SECONDS, other):
            other.execute("select pg_notify('stagepost', $1)", [word])
        for payload in _payloads(connection, self._probe_seconds):
            if payload == word:
                return True
            self._hint(payload)
        return False

    def _hint(self, payload: str) -> None:
        if payload.startswith(PROBE_PREFIX):
            return
        if not payload or not self._queues.isdisjoint(payload.split(",")):
            self._wake()


def _changes_hands(connection: Connection, other: Connection) -> bool:
    """Open a transaction on the other connection, and see whose session it gets; others may get in between."""
    first = _session(connection)
    other.begin()
    others = _session(other)
    second = _session(connection)
    other.rollback()
    return first == others or first != second


def _session(connection: Connection) -> int:
    [(pid,)] = connection.execute("select pg_backend_pid()", {})
    return int(pid)


def _payloads(connection: Connection, seconds: float) -> Iterator[str]:
    """Yield what arrives, for so long; asleep in between, where the driver would look ten times a second."""
    raw = connection.raw
    give_up_at = monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(raw.fileno(), selectors.EVENT_READ)
        while True:
            for notification in raw.notifies(timeout=0):
                yield notification.payload
            if not selector.select(max(0.0, give_up_at - monotonic())):
                return


@contextlib.contextmanager
def _within(seconds: float, *connections: Connection) -> Iterator[None]:
    """Break the connections off if the body takes longer: a half-open one would hold it for ever."""

    def abort() -> None:
        for connection in connections:
            connection.abort()

    timer = threading.Timer(seconds, abort)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
