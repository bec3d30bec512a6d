"""Every kind of connection that an application may pass, behind one interface for the tests."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

import pytest

from stagepost.clock import Clock
from stagepost.database.connection import Database
from stagepost.database.statement import Operation
from stagepost.database.transaction import is_async, run_in, run_in_async

T = TypeVar("T")

DRIVERS = ("sqlite3", "aiosqlite", "psycopg", "psycopg2", "asyncpg", "pymysql", "MySQLdb", "asyncmy")
INSTALLED = {name for name in DRIVERS if find_spec(name)}


@dataclass(frozen=True)
class Kind:
    """How an application uses one kind of connection; every function may return something to await."""

    name: str
    database: str
    needs: str
    """The driver's module."""
    open: Callable[..., Any]
    """Takes the database's URL, `autocommit` and `odd_rows`, and returns the object to pass as `tx`."""
    execute: Callable[[Any, str], Any]
    commit: Callable[[Any], Any] = lambda tx: tx.commit()
    rollback: Callable[[Any], Any] = lambda tx: tx.rollback()
    begin: Callable[[Any], Any] = lambda _tx: None
    close: Callable[[Any], Any] = lambda tx: tx.close()
    takes_begin: bool = True
    """With autocommit, a plain `begin` opens a transaction."""
    has_odd_rows: bool = True
    """The application can set another row type on this connection."""

    def __str__(self) -> str:
        return f"{self.database}-{self.name}"


class Caller:
    """An application with a connection; asynchronous kinds run on a separate event loop."""

    def __init__(self, kind: Kind, url: str, clock: Clock, **options: bool) -> None:
        if kind.needs not in INSTALLED:
            pytest.skip(f"{kind.needs} is not installed")
        self.kind = kind
        self.clock = clock
        self.database: Database | None = None
        """The database to which the connection must lead."""
        self._loop = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.tx = self._finish(kind.open(url, **options))

    def begin(self) -> None:
        self._finish(self.kind.begin(self.tx))

    def execute(self, sql: str) -> None:
        self._finish(self.kind.execute(self.tx, sql))

    def write(self, note: str) -> None:
        """Write a row of the application."""
        self.execute(f"insert into caller_note (note) values ('{note}')")

    def read(self) -> None:
        """Read a row of the application."""
        self.execute("select note from caller_note")

    def run(self, operation: Operation[T]) -> T:
        if is_async(self.tx):
            return self._loop.run(run_in_async(self.tx, operation, clock=self.clock, database=self.database))
        return run_in(self.tx, operation, clock=self.clock, database=self.database)

    def commit(self) -> None:
        self._finish(self.kind.commit(self.tx))

    def rollback(self) -> None:
        self._finish(self.kind.rollback(self.tx))

    def close(self) -> None:
        self._finish(self.kind.close(self.tx))
        self._loop.close()

    def _finish(self, result: Any) -> Any:
        async def wait() -> Any:
            return await result

        return self._loop.run(wait()) if inspect.isawaitable(result) else result


@contextlib.contextmanager
def calling(kind: Kind, url: str, clock: Clock, **options: bool) -> Iterator[Caller]:
    """Open a caller, and close it whatever happens."""
    caller = Caller(kind, url, clock, **options)
    try:
        yield caller
    finally:
        caller.close()
