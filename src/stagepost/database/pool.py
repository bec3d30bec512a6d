"""Keeps connections for reuse and lends each to one thread at a time."""

from __future__ import annotations

import contextlib
import threading
from typing import Self

from stagepost.clock import monotonic
from stagepost.database.connection import Connection, Database
from stagepost.database.forks import reset_after_fork
from stagepost.errors import StoreUnavailable

__all__ = ["Pool", "PooledConnection"]


class PooledConnection:
    """A lent connection. The borrower sets `is_sound` when no transaction is open and its state is certain."""

    __slots__ = ("_pool", "connection", "is_sound")

    connection: Connection

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.is_sound = False

    def __enter__(self) -> Self:
        self.connection = self._pool.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.give_back(self.connection, is_sound=self.is_sound)


class Pool:
    """At most `size` connections, opened when needed; the one used last is lent first."""

    def __init__(self, database: Database, *, size: int, wait_seconds: float = 30.0) -> None:
        self.database = database
        self.size = 1 if database.shares_one_connection else size
        self.wait_seconds = wait_seconds
        self._lock = threading.RLock()
        self._freed = threading.Condition(self._lock)
        self._waiting = 0
        self._idle: list[Connection] = []
        self._open = 0
        self._closed = False
        self._inherited: list[Connection] = []
        reset_after_fork(self)

    @property
    def in_use(self) -> int:
        """How many connections are lent at the moment."""
        with self._lock:
            return self._open - len(self._idle)

    def connection(self) -> PooledConnection:
        """Lend a connection; it is kept for reuse only if the borrower sets `is_sound`."""
        return PooledConnection(self)

    def close(self) -> None:
        """Close idle connections now, and lent ones when they are returned."""
        with self._lock:
            self._closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close all idle connections; new ones are opened when needed."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._freed.notify_all()
        for connection in idle:
            with contextlib.suppress(Exception):
                connection.close()

    def acquire(self) -> Connection:
        """Take a connection; `give_back` must follow."""
        with self._lock:
            if not self._idle and self._open >= self.size:
                self._wait_for_one()
            if self._closed:
                raise StoreUnavailable("the store is closed. Create a new App to continue.")
            if self._idle:
                return self._idle.pop()
            self._open += 1
        try:
            return self.database.connect()
        except BaseException:
            self._count_down()
            raise

    def _wait_for_one(self) -> None:
        deadline = monotonic() + self.wait_seconds
        self._waiting += 1
        try:
            while not self._idle and self._open >= self.size:
                if not self._freed.wait(deadline - monotonic()):
                    raise StoreUnavailable(
                        f"no database connection became free in {self.wait_seconds:g} s: all {self.size} are in use. "
                        f"Raise `pool_size`, or look for code that holds a connection for a long time."
                    )
        finally:
            self._waiting -= 1

    def give_back(self, connection: Connection, *, is_sound: bool) -> None:
        """Keep a sound connection for the next borrower; close any other."""
        with self._lock:
            if is_sound and not self._closed:
                self._idle.append(connection)
                if self._waiting:
                    self._freed.notify()
                return
        with contextlib.suppress(Exception):
            connection.close()
        self._count_down()

    def _count_down(self) -> None:
        with self._lock:
            self._open -= 1
            self._freed.notify()

    def reset(self) -> None:
        """Forget the parent's connections in a forked child, without closing them: both share the same sockets."""
        self._lock = threading.RLock()
        self._freed = threading.Condition(self._lock)
        self._waiting = 0
        self._inherited += self._idle  # referenced, so that no finaliser closes the parent's session
        self._idle, self._open = [], 0
