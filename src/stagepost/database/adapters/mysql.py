"""Callers' MySQL and MariaDB connections: PyMySQL, mysqlclient and asyncmy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from stagepost.database.adapters.caller_connection import AsyncCallerConnection, SyncCallerConnection
from stagepost.database.dialect import MYSQL, ParameterStyle
from stagepost.database.lent import IN_TRANSACTION
from stagepost.database.statement import Rows
from stagepost.errors import NoTransaction

__all__ = ["open_asyncmy", "open_mysqldb", "open_pymysql"]


def open_pymysql(tx: Any) -> SyncCallerConnection:
    """Use a PyMySQL connection."""
    _require_transaction(tx)
    return _blocking(tx, import_module("pymysql.cursors").Cursor)


def open_mysqldb(tx: Any) -> SyncCallerConnection:
    """Use a mysqlclient connection."""
    caller = _blocking(tx, import_module("MySQLdb.cursors").Cursor)
    if tx.get_autocommit():
        _require_savepoints(tx, caller)
    return caller


async def open_asyncmy(tx: Any) -> AsyncCallerConnection:
    """Use an asyncmy connection."""
    _require_transaction(tx)
    plain = import_module("asyncmy.cursors").Cursor

    async def execute(sql: str, parameters: Any) -> Rows:
        async with tx.cursor(plain) as cursor:
            await cursor.execute(sql, parameters)
            return list(await cursor.fetchall()) if cursor.description else []

    return AsyncCallerConnection(MYSQL, ParameterStyle.PYFORMAT, execute, tx)


def _blocking(tx: Any, plain: Any) -> SyncCallerConnection:
    def execute(sql: str, parameters: Any) -> Rows:
        with tx.cursor(plain) as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    return SyncCallerConnection(MYSQL, ParameterStyle.PYFORMAT, execute, tx)


def _require_transaction(tx: Any) -> None:
    if tx.get_autocommit() and not tx.server_status & IN_TRANSACTION:
        raise NoTransaction(tx)


def _require_savepoints(tx: Any, caller: SyncCallerConnection) -> None:
    """Detect a transaction by a savepoint, which the server forgets outside of one: mysqlclient hides the status."""
    caller.execute("savepoint stagepost_is_in_transaction", None)
    try:
        caller.execute("release savepoint stagepost_is_in_transaction", None)
    except import_module("MySQLdb").OperationalError as error:
        raise NoTransaction(tx) from error
