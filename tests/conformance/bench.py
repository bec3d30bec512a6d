"""A store on the test bench: one database, one colour, a clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from stagepost.database import Store
from stagepost.database.connection import Connection
from stagepost.database.dialect import Dialect, call_of
from stagepost.database.migrate import migrate, migrations_of
from stagepost.database.statement import Operation, Rows
from stagepost.database.transaction import run_in_async
from stagepost.errors import StagepostError
from stagepost.store.counting import PARTS, repair
from stagepost.testing.clock import ManualClock

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""Longer than any machine freezes: a call that is retried or aborted was in a deadlock, or waits forever."""
PATIENT = {
    "sqlite": f"pragma busy_timeout = {PATIENCE_SECONDS * 1000:.0f}",
    "postgres": f"set session lock_timeout = '{PATIENCE_SECONDS:.0f}s'",
    "mysql": f"set session innodb_lock_wait_timeout = {PATIENCE_SECONDS:.0f}",
}


def patient_store(url: str, **options: Any) -> Store:
    """A store that waits for locks and answers for as long as necessary."""
    store = Store.at(url, call_seconds=PATIENCE_SECONDS, patience_seconds=PATIENCE_SECONDS, **options)
    connect = store.database.connect

    def connect_patiently() -> Connection:
        connection = connect()
        connection.execute(PATIENT[store.dialect.name], {})
        return connection

    store.database.connect = connect_patiently  # type: ignore[method-assign]
    return store


class Colour(StrEnum):
    """Whether operations run on the store's blocking connections, or on a caller's asynchronous ones."""

    SYNC = "sync"
    ASYNC = "async"
    ASYNCPG = "asyncpg"
    """Asynchronous too; the only driver that lets the server guess every parameter's type."""


class DatabaseOnBench:
    """One migrated database for the whole run, and the connections that stay open to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = patient_store(url)
        migrate(self.store)
        self.loop = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._filled = filled_tables(self.store.dialect)
        self.retries = 0
        """How often an operation of a race had to be run again."""
        self._racers: list[Store] = []
        self._asynchronous: dict[Colour, Any] = {}

    async def asynchronous(self, colour: Colour) -> Any:
        """A caller's asynchronous connection, on `loop`."""
        if colour not in self._asynchronous:
            self._asynchronous[colour] = await connect_async(self.url, colour)
        return self._asynchronous[colour]

    def empty(self) -> None:
        """Delete all rows, which is much faster than a new database."""
        with self.store.transaction() as connection:
            for (table,) in connection.execute(self._filled, {}):
                connection.execute(f"delete from {table}", {})

    def racers(self, number: int) -> list[Store]:
        """Stores with one open connection each, kept for the next race."""
        missing = number - len(self._racers)
        self._racers += [patient_store(self.url, pool_size=1, pause=self._count_retry) for _ in range(missing)]
        for store in self._racers[:number]:
            store.clock = self.store.clock
            with store.transaction() as connection:
                connection.execute("select 1", {})
        return self._racers[:number]

    def _count_retry(self, pause: float) -> None:
        self.retries += 1
        time.sleep(pause)

    def close(self) -> None:
        for store in [self.store, *self._racers]:
            store.close()
        for connection in self._asynchronous.values():
            self.loop.run(_close(connection))
        self.loop.close()


class Bench:
    """What tests call `store`: runs operations, moves time, looks at rows."""

    def __init__(self, database: DatabaseOnBench, colour: Colour) -> None:
        self.database = database
        self.colour = colour
        self.clock = database.store.clock = ManualClock()

    @property
    def url(self) -> str:
        return self.database.url

    @property
    def dialect(self) -> Dialect:
        return self.database.store.dialect

    @property
    def now(self) -> int:
        """Microseconds since 1970 on this bench's clock."""
        instant = self.clock.instant()
        assert instant is not None
        return instant

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in a separate transaction, in the bench's colour."""
        if self.colour is Colour.SYNC:
            return self.database.store.run(operation)
        return self.database.loop.run(self._run_async(operation))

    def rows(self, sql: str, **parameters: Any) -> Rows:
        """Run one plain statement and commit it; parameters are written `:name` on every database."""
        call = call_of(sql, parameters, self.database.store.database.style)
        with self.database.store.pool.connection() as loan:
            rows = loan.connection.execute(call.sql, call.parameters)
            loan.is_sound = True
            return rows

    def edit(self, sql: str, **parameters: Any) -> None:
        """Change rows by hand, as with a database client, and let the store recount them."""
        self.rows(sql, **parameters)
        for part in PARTS:
            self.run(repair(part))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction on a blocking connection, committed if the body returns."""
        with self.database.store.transaction() as connection:
            yield connection

    def race(self, *operations: Operation[T]) -> list[T]:
        """Run each operation on a separate connection and thread, all started at once."""
        stores = self.database.racers(len(operations))
        return at_once([_call(store, operation) for store, operation in zip(stores, operations, strict=True)])

    def race_to_end(self, *operations: Operation[Any]) -> list[Any]:
        """As `race`, for operations that may be refused: a Stagepost error replaces the result."""

        def ended(store: Store, operation: Operation[Any]) -> Callable[[], Any]:
            def call() -> Any:
                try:
                    return store.run(operation)
                except StagepostError as error:
                    return error

            return call

        stores = self.database.racers(len(operations))
        return at_once([ended(store, operation) for store, operation in zip(stores, operations, strict=True)])

    async def _run_async(self, operation: Operation[T]) -> T:
        tx = await self.database.asynchronous(self.colour)
        async with _transaction(tx):
            return await run_in_async(tx, operation, clock=self.clock)


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make calls in threads that leave a barrier together; returns the results in the order of the calls."""
    barrier = threading.Barrier(len(calls))

    def go(call: Callable[[], T]) -> T:
        barrier.wait(timeout=60)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        futures = [threads.submit(go, call) for call in calls]
        return [future.result(timeout=240) for future in futures]


WAITING_ON_POSTGRES = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


def is_kept_waiting(store: Bench) -> bool:
    """Whether a connection waits for a lock in this database; other runs may use the same server."""
    if store.dialect.name == "postgres":
        [(waiting,)] = store.rows(WAITING_ON_POSTGRES)
        return int(waiting) > 0
    # Not from information_schema.innodb_trx, which is only refreshed when it has not been read for a tenth of a second.
    [(*_, status)] = store.rows("show engine innodb status")
    _, *open_ones = str(status).split("---TRANSACTION ")
    waiting = [transaction for transaction in open_ones if "\nLOCK WAIT " in transaction]
    threads = {thread for transaction in waiting for thread in re.findall(r"thread id (\d+),", transaction)}
    own = store.rows("select id from information_schema.processlist where db = database()")
    return not threads.isdisjoint(str(thread) for (thread,) in own)


def mysql_options(url: str) -> dict[str, Any]:
    """Connection options that all MySQL drivers share."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "charset": "utf8mb4",
    }


async def connect_async(url: str, colour: Colour) -> Any:
    """Open an asynchronous connection as an application would: the driver's defaults, no autocommit."""
    match urlsplit(url).scheme:
        case "sqlite":
            import aiosqlite

            return await aiosqlite.connect(urlsplit(url).path[1:])
        case "postgresql" if colour is Colour.ASYNCPG:
            import asyncpg

            return await asyncpg.connect(url)
        case "postgresql":
            import psycopg

            return await psycopg.AsyncConnection.connect(url)
        case _:
            import asyncmy

            return await asyncmy.connect(**mysql_options(url), db=urlsplit(url).path[1:])


@contextlib.asynccontextmanager
async def _transaction(tx: Any) -> AsyncIterator[None]:
    if hasattr(tx, "transaction"):  # psycopg and asyncpg
        async with tx.transaction():
            yield
        return
    try:
        yield
    except BaseException:
        await tx.rollback()
        raise
    await tx.commit()


async def _close(tx: Any) -> None:
    closing: Awaitable[None] | None = tx.close()
    if closing is not None:  # asyncmy closes at once
        await closing


def _call(store: Store, operation: Operation[T]) -> Callable[[], T]:
    return lambda: store.run(operation)


def filled_tables(dialect: Dialect) -> str:
    """A statement that lists Stagepost's tables that have rows, which are few after most tests."""
    return " union all ".join(f"select '{table}' where exists (select 1 from {table})" for table in tables_of(dialect))


def tables_of(dialect: Dialect) -> list[str]:
    """The names of our tables."""
    sql = "\n".join(migration.sql for migration in migrations_of(dialect))
    return re.findall(r"^create table (?:if not exists )?(stagepost_\w+)", sql, flags=re.MULTILINE)
