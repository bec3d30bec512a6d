"""Callers' SQLAlchemy sessions and connections, on any driver that Stagepost supports."""

from __future__ import annotations

from typing import Any

from stagepost.database.adapters.caller_connection import AsyncCallerConnection, SyncCallerConnection
from stagepost.database.adapters.sqlite import opening
from stagepost.database.dialect import MYSQL, POSTGRES, SQLITE, Dialect, ParameterStyle
from stagepost.database.statement import Rows
from stagepost.errors import ConfigurationError, NoTransaction

__all__ = ["open_async_sqlalchemy", "open_sqlalchemy_connection", "open_sqlalchemy_session"]

DRIVERS: dict[str, tuple[Dialect, ParameterStyle]] = {
    "pysqlite": (SQLITE, ParameterStyle.NAMED),
    "aiosqlite": (SQLITE, ParameterStyle.NAMED),
    "psycopg": (POSTGRES, ParameterStyle.PYFORMAT),
    "psycopg2": (POSTGRES, ParameterStyle.PYFORMAT),
    "asyncpg": (POSTGRES, ParameterStyle.DOLLAR),
    "pymysql": (MYSQL, ParameterStyle.PYFORMAT),
    "mysqldb": (MYSQL, ParameterStyle.PYFORMAT),
    "asyncmy": (MYSQL, ParameterStyle.PYFORMAT),
}


def open_sqlalchemy_session(tx: Any) -> SyncCallerConnection:
    """Use the connection of a Session or scoped_session, which starts its transaction itself."""
    return open_sqlalchemy_connection(tx.connection())


def open_sqlalchemy_connection(tx: Any) -> SyncCallerConnection:
    """Use a Connection, which starts its transaction itself."""
    driver = tx.dialect.driver
    if driver not in DRIVERS:
        known = ", ".join(sorted(DRIVERS))
        raise ConfigurationError(
            f"SQLAlchemy driver {tx.dialect.name}+{driver} is not supported. Stagepost supports {known}."
        )
    dialect, style = DRIVERS[driver]

    def execute(sql: str, parameters: Any) -> Rows:
        if style is ParameterStyle.DOLLAR:
            parameters = tuple(parameters)
        result = tx.exec_driver_sql(sql, parameters)
        return [tuple(row) for row in result] if result.returns_rows else []

    if dialect is SQLITE:
        if not tx.in_transaction():
            tx.begin()  # an event handler of the engine may start SQLite's transaction here
        raw = tx.connection.driver_connection
        return SyncCallerConnection(dialect, style, execute, raw, opening(raw))
    if _commits_by_itself(tx.connection.dbapi_connection):
        raise NoTransaction(tx)
    return SyncCallerConnection(dialect, style, execute, tx.connection.driver_connection)


async def open_async_sqlalchemy(tx: Any) -> AsyncCallerConnection:
    """Use an AsyncSession or AsyncConnection; both give access to the blocking object that they wrap."""

    def open_wrapped(wrapped: Any) -> SyncCallerConnection:
        is_session = hasattr(wrapped, "get_bind")
        return open_sqlalchemy_session(wrapped) if is_session else open_sqlalchemy_connection(wrapped)

    caller: SyncCallerConnection = await tx.run_sync(open_wrapped)

    async def execute(sql: str, parameters: Any) -> Rows:
        rows: Rows = await tx.run_sync(lambda _wrapped: caller.execute(sql, parameters))
        return rows

    return AsyncCallerConnection(caller.dialect, caller.style, execute, caller.raw, caller.opening)


def _commits_by_itself(driver_connection: Any) -> bool:
    """Whether the engine or the connection has the isolation level AUTOCOMMIT."""
    if hasattr(driver_connection, "get_autocommit"):
        return bool(driver_connection.get_autocommit())
    return bool(driver_connection.autocommit)
