"""Callers' PostgreSQL connections: psycopg, psycopg2 and asyncpg."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from stagepost.database.adapters.caller_connection import AsyncCallerConnection, SyncCallerConnection
from stagepost.database.dialect import POSTGRES, ParameterStyle
from stagepost.database.libpq import keeps_plan, session_of
from stagepost.database.statement import Rows
from stagepost.errors import NoTransaction

__all__ = ["open_asyncpg", "open_psycopg", "open_psycopg2", "open_psycopg_async"]

IDLE = 0
"""libpq's transaction status outside a transaction."""


def open_psycopg(tx: Any) -> SyncCallerConnection:
    """Use a psycopg connection; one of our own through its `Session`, which costs less."""
    _require_transaction(tx, tx.info.transaction_status)
    session = None if tx.pgconn.pipeline_status else session_of(tx)
    if session is not None:
        return SyncCallerConnection(POSTGRES, ParameterStyle.DOLLAR, session.execute, tx)

    make_cursor = _cursors(tx, raw="RawCursor", plain="Cursor")

    def execute(sql: str, parameters: Any) -> Rows:
        with make_cursor(row_factory=_as_tuples) as cursor:
            cursor.execute(sql, parameters, prepare=None if keeps_plan(sql) else False)
            if tx.pgconn.pipeline_status:  # a pipeline returns results only on request
                with tx.pipeline() as pipeline:
                    pipeline.sync()
            return cursor.fetchall() if cursor.description else []

    return SyncCallerConnection(POSTGRES, ParameterStyle.PYFORMAT, execute, tx)


async def open_psycopg_async(tx: Any) -> AsyncCallerConnection:
    """Use a psycopg AsyncConnection."""
    _require_transaction(tx, tx.info.transaction_status)

    make_cursor = _cursors(tx, raw="AsyncRawCursor", plain="AsyncCursor")

    async def execute(sql: str, parameters: Any) -> Rows:
        async with make_cursor(row_factory=_as_tuples) as cursor:
            await cursor.execute(sql, parameters, prepare=None if keeps_plan(sql) else False)
            if tx.pgconn.pipeline_status:
                async with tx.pipeline() as pipeline:
                    await pipeline.sync()
            return await cursor.fetchall() if cursor.description else []

    return AsyncCallerConnection(POSTGRES, ParameterStyle.PYFORMAT, execute, tx)


def open_psycopg2(tx: Any) -> SyncCallerConnection:
    """Use a psycopg2 connection."""
    _require_transaction(tx, tx.get_transaction_status())
    plain = import_module("psycopg2.extensions").cursor

    def execute(sql: str, parameters: Any) -> Rows:
        with tx.cursor(cursor_factory=plain) as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    return SyncCallerConnection(POSTGRES, ParameterStyle.PYFORMAT, execute, tx)


async def open_asyncpg(tx: Any) -> AsyncCallerConnection:
    """Use an asyncpg connection, pooled or not."""
    if not tx.is_in_transaction():
        raise NoTransaction(tx)

    async def execute(sql: str, parameters: Any) -> Rows:
        return [tuple(record) for record in await tx.fetch(sql, *parameters)]

    return AsyncCallerConnection(POSTGRES, ParameterStyle.DOLLAR, execute, getattr(tx, "_con", tx))


def _require_transaction(tx: Any, status: int) -> None:
    # Without autocommit the driver starts a transaction before the next statement.
    if tx.autocommit and status == IDLE:
        raise NoTransaction(tx)


def _cursors(tx: Any, *, raw: str, plain: str) -> Callable[..., Any]:
    """Create cursors as the caller's connection does, unless those accept no named parameters."""
    psycopg = import_module("psycopg")
    takes_names = not issubclass(tx.cursor_factory, getattr(psycopg, raw))
    return tx.cursor if takes_names else partial(getattr(psycopg, plain), tx)


def _as_tuples(_cursor: Any) -> type[tuple[Any, ...]]:
    return tuple
