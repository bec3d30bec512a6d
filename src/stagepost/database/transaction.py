"""Runs operations on a connection of the caller, inside the transaction that the caller has started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from stagepost.clock import Clock
from stagepost.database.adapters.caller_connection import AsyncCallerConnection, CallerConnection, SyncCallerConnection
from stagepost.database.adapters.django import open_django
from stagepost.database.adapters.mysql import open_asyncmy, open_mysqldb, open_pymysql
from stagepost.database.adapters.postgres import open_asyncpg, open_psycopg, open_psycopg2, open_psycopg_async
from stagepost.database.adapters.sqlalchemy import (
    open_async_sqlalchemy,
    open_sqlalchemy_connection,
    open_sqlalchemy_session,
)
from stagepost.database.adapters.sqlite import open_aiosqlite, open_sqlite3
from stagepost.database.blocking_calls import warn_if_on_event_loop
from stagepost.database.connection import Database
from stagepost.database.failures import MIGRATE_COMMAND, Address, Translated, failure_of, words_of
from stagepost.database.lent import lent_transaction
from stagepost.database.runner import Calls, calls_for, drive, drive_async
from stagepost.database.statement import Operation
from stagepost.database.trouble import Trouble, is_of_driver
from stagepost.database.whereabouts import check_database, name_at
from stagepost.errors import ConfigurationError, SchemaError, StagepostError

__all__ = ["adapter_for", "is_async", "run_in", "run_in_async"]

T = TypeVar("T")

SyncAdapter = Callable[[Any], SyncCallerConnection]
AsyncAdapter = Callable[[Any], Awaitable[AsyncCallerConnection]]

SYNC_ADAPTERS: dict[tuple[str, str], SyncAdapter] = {
    ("sqlite3", "Connection"): open_sqlite3,
    ("psycopg", "Connection"): open_psycopg,
    ("psycopg2", "connection"): open_psycopg2,
    ("pymysql", "Connection"): open_pymysql,
    ("MySQLdb", "Connection"): open_mysqldb,
    ("sqlalchemy", "Session"): open_sqlalchemy_session,
    ("sqlalchemy", "scoped_session"): open_sqlalchemy_session,
    ("sqlalchemy", "Connection"): open_sqlalchemy_connection,
    ("django", "ConnectionProxy"): open_django,
    ("django", "BaseDatabaseWrapper"): open_django,
}
"""By the package and name of the connection's class, so that no driver has to be imported."""

ASYNC_ADAPTERS: dict[tuple[str, str], AsyncAdapter] = {
    ("aiosqlite", "Connection"): open_aiosqlite,
    ("psycopg", "AsyncConnection"): open_psycopg_async,
    ("asyncpg", "Connection"): open_asyncpg,
    ("asyncpg", "PoolConnectionProxy"): open_asyncpg,
    ("asyncmy", "Connection"): open_asyncmy,
    ("sqlalchemy", "AsyncSession"): open_async_sqlalchemy,
    ("sqlalchemy", "async_scoped_session"): open_async_sqlalchemy,
    ("sqlalchemy", "AsyncConnection"): open_async_sqlalchemy,
}


def run_in(
    tx: Any,
    operation: Operation[T],
    *,
    clock: Clock,
    database: Database | None = None,
    migrate_command: str = MIGRATE_COMMAND,
) -> T:
    """Run an operation inside the transaction of a blocking connection; the caller commits or rolls back.

    A connection that leads to another database than `database` is refused.
    """
    warn_if_on_event_loop()
    adapter = adapter_for(tx)
    if adapter.sync is None:
        raise ConfigurationError(
            f"{_name(tx)} is asynchronous: await the method that ends in _async, such as enqueue_async."
        )
    caller = adapter.sync(tx)
    result: T | Operation[T] = operation
    with Translated(partial(_failure, tx, operation, caller, database, migrate_command=migrate_command)):
        if caller.opening and not operation.definition.is_read_only:
            caller.execute(caller.opening, ())
        if database is not None:
            drive(check_database(caller, tx, database), caller.execute)
        while isinstance(result, Operation):
            result = drive(_calls(result, caller, clock), caller.execute)
    return result


async def run_in_async(tx: Any, operation: Operation[T], *, clock: Clock, database: Database | None = None) -> T:
    """Run an operation inside the transaction of an async connection; the caller commits or rolls back."""
    adapter = adapter_for(tx)
    if adapter.async_ is None:
        raise ConfigurationError(
            f"{_name(tx)} blocks, and would stop the event loop: pass an asynchronous connection, "
            f"or use the blocking client in a thread."
        )
    caller = await adapter.async_(tx)
    result: T | Operation[T] = operation
    with Translated(partial(_failure, tx, operation, caller, database)):
        if caller.opening and not operation.definition.is_read_only:
            await caller.execute(caller.opening, ())
        if database is not None:
            await drive_async(check_database(caller, tx, database), caller.execute)
        while isinstance(result, Operation):
            result = await drive_async(_calls(result, caller, clock), caller.execute)
    return result


def is_async(tx: Any) -> bool:
    """Whether statements on this connection have to be awaited."""
    return adapter_for(tx).sync is None


@dataclass(frozen=True, slots=True)
class Adapter:
    """How to use one kind of connection; exactly one of the two is set."""

    sync: SyncAdapter | None = None
    async_: AsyncAdapter | None = None


def adapter_for(tx: Any) -> Adapter:
    """Recognise a caller's connection or session by the names of its classes."""
    for cls in type(tx).__mro__:
        kind = (cls.__module__.partition(".")[0], cls.__name__)
        if kind in SYNC_ADAPTERS:
            return Adapter(sync=SYNC_ADAPTERS[kind])
        if kind in ASYNC_ADAPTERS:
            return Adapter(async_=ASYNC_ADAPTERS[kind])
    kinds = sorted(f"{package}.{name}" for package, name in SYNC_ADAPTERS | ASYNC_ADAPTERS)
    raise ConfigurationError(f"{_name(tx)} is no connection that Stagepost supports. Pass one of: {', '.join(kinds)}.")


def _calls(operation: Operation[T], caller: CallerConnection[Any], clock: Clock) -> Calls[T | Operation[T]]:
    return calls_for(operation, dialect=caller.dialect, style=caller.style, clock=clock)


def _failure(
    tx: Any,
    operation: Operation[Any],
    caller: CallerConnection[Any],
    database: Database | None,
    error: Exception,
    *,
    migrate_command: str = MIGRATE_COMMAND,
) -> BaseException:
    """Return the error to raise. Conflicts and lost connections stay the driver's: the caller repeats its transaction.

    SQLAlchemy and Django wrap the driver's error.
    """
    if isinstance(error, StagepostError):
        return error
    lent = lent_transaction(tx)
    if lent is not None and not caller.dialect.guards_transactions:
        lent.has_failed_in(operation.name, error)
    inner = getattr(error, "orig", None) or error.__cause__ or error
    trouble = caller.dialect.trouble(inner)
    if trouble in {Trouble.CONFLICT, Trouble.CONNECTION} or not is_of_driver(inner):
        return error
    address = database.address if database is not None else Address("database", path=name_at(caller))
    if trouble is Trouble.SCHEMA and lent is None and database is not None:
        failure: BaseException = SchemaError(
            f"{operation.name}: {words_of(inner, address)}. The connection leads to {name_at(caller)}; the app's "
            f"database is {address}. If these are the same, run `stagepost migrate`."
        )
    else:
        failure = failure_of(
            operation.name, inner, dialect=caller.dialect, address=address, migrate_command=migrate_command
        )
    failure.__cause__ = error
    return failure


def _name(tx: Any) -> str:
    return f"{type(tx).__module__}.{type(tx).__qualname__}"
