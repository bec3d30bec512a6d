"""Wake-ups from PostgreSQL: LISTEN on a separate connection, with regular probes that notifications arrive."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable, Collection, Iterator
from uuid import uuid4

from stagepost.clock import monotonic
from stagepost.database.connection import Connection
from stagepost.database.deadline import Deadlines, Limit
from stagepost.database.wakeups.listener import Listener

__all__ = ["PostgresWakeups"]

PROBE_PREFIX = "?"
"""No queue's name begins with this."""
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
    """Receives the queue names that `insert_jobs` sends on channel `stagepost`; an empty list means any queue."""

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
        self._deadlines = Deadlines()
        self._probe_seconds = probe_seconds
        self._probe_every_seconds = probe_every_seconds

    def _listen(self, connection: Connection) -> float:
        if self._is_pooled(connection):
            self._is_deaf(POOLED)
            return self._probe_every_seconds
        with self._in_time(connection):
            connection.execute("listen stagepost", {})
        if not self._probe(connection):
            self._is_deaf(UNHEARD)
            with self._in_time(connection):
                connection.execute("unlisten *", {})
            return self._probe_every_seconds
        while not self._stopping.is_set():
            self._hears()
            for payload in _payloads(connection, self._probe_every_seconds):
                self._hint(payload)
            if not self._probe(connection):
                self._is_deaf(UNHEARD)
                break  # the connection worked before and died unnoticed: try another one
        return 0.0

    def _is_pooled(self, connection: Connection) -> bool:
        """Return whether a pooler shares our server session, in which case LISTEN would affect other clients."""
        with self._in_time(connection):
            if _session(connection) == connection.raw.info.backend_pid:
                return False  # we are connected to the server itself
        with contextlib.closing(self._open()) as other, self._in_time(connection), self._in_time(other):
            return any(_changes_hands(connection, other) for _ in range(POOL_TRIES))

    def _probe(self, connection: Connection) -> bool:
        """Send ourselves a unique notification, and return whether it arrived.

        It is sent through another connection, because a pooler may deliver only notifications of our own session.
        """
        word = f"{PROBE_PREFIX}{uuid4()}"
        with contextlib.closing(self._open()) as other, self._in_time(other):
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

    def _in_time(self, connection: Connection) -> Limit:
        """Abort the connection if the body takes too long, because a half-open one would block forever."""
        return self._deadlines.limit(STATEMENT_SECONDS, connection.abort)


def _changes_hands(connection: Connection, other: Connection) -> bool:
    """Check whether a transaction on the other connection gets our session; other clients may interfere."""
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
    """Yield notifications for some seconds; sleeps in between, where the driver would poll ten times a second."""
    raw = connection.raw
    give_up_at = monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(raw.fileno(), selectors.EVENT_READ)
        while True:
            for notification in raw.notifies(timeout=0):
                yield notification.payload
            if not selector.select(max(0.0, give_up_at - monotonic())):
                return
