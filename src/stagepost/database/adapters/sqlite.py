"""Callers' SQLite connections: sqlite3 and aiosqlite."""

from __future__ import annotations

import sqlite3
from typing import Any

from stagepost.database.adapters.caller_connection import AsyncCallerConnection, SyncCallerConnection
from stagepost.database.dialect import SQLITE, ParameterStyle
from stagepost.database.statement import Rows
from stagepost.errors import NoTransaction

__all__ = ["open_aiosqlite", "open_sqlite3", "opening"]

LEGACY_TRANSACTION_CONTROL = -1
"""The value of `autocommit`, new in Python 3.12, that leaves transactions to `isolation_level`."""


def open_sqlite3(tx: sqlite3.Connection) -> SyncCallerConnection:
    """Use a sqlite3 connection."""

    def execute(sql: str, parameters: Any) -> Rows:
        cursor = tx.cursor()
        cursor.row_factory = None
        asked, tx.text_factory = tx.text_factory, str
        try:
            return cursor.execute(sql, parameters).fetchall()
        finally:
            tx.text_factory = asked

    autocommit = getattr(tx, "autocommit", LEGACY_TRANSACTION_CONTROL)
    return SyncCallerConnection(SQLITE, ParameterStyle.NAMED, execute, tx, opening(tx, autocommit=autocommit))


async def open_aiosqlite(tx: Any) -> AsyncCallerConnection:
    """Use an aiosqlite connection."""

    async def execute(sql: str, parameters: Any) -> Rows:
        async with await tx.cursor() as cursor:
            cursor.row_factory = None
            asked, tx.text_factory = tx.text_factory, str
            try:
                await cursor.execute(sql, parameters)
                rows: Rows = await cursor.fetchall()
            finally:
                tx.text_factory = asked
            return rows

    # Only the thread that owns the connection may read this.
    autocommit = await tx._execute(getattr, tx._conn, "autocommit", LEGACY_TRANSACTION_CONTROL)  # noqa: SLF001
    return AsyncCallerConnection(SQLITE, ParameterStyle.NAMED, execute, tx, opening(tx, autocommit=autocommit))


def opening(tx: Any, *, autocommit: int = LEGACY_TRANSACTION_CONTROL) -> str | None:
    """Return the statement that starts a transaction now, so that no other process changes what is read before."""
    if tx.in_transaction:
        return None
    if autocommit is True or tx.isolation_level is None:
        raise NoTransaction(tx)
    # Immediate, because a transaction that reads first and writes later would fail instead of waiting.
    return "begin immediate"
