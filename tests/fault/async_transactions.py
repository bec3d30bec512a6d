"""Transactions on a handler's own asynchronous connections, and the effect written in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
import asyncmy
import psycopg


@asynccontextmanager
async def async_transaction(url: str) -> AsyncIterator[tuple[Any, str]]:
    """A transaction on an asynchronous driver's connection, and how that driver writes parameters."""
    opening = {"sqlite": _sqlite_transaction, "postgresql": _postgres_transaction, "mysql": _mysql_transaction}
    async with opening[urlsplit(url).scheme](url) as transaction:
        yield transaction


@asynccontextmanager
async def _sqlite_transaction(url: str) -> AsyncIterator[tuple[Any, str]]:
    async with aiosqlite.connect(url.partition(":///")[2], timeout=60) as connection:
        await connection.execute("begin immediate")
        yield connection, "?"
        await connection.commit()


@asynccontextmanager
async def _postgres_transaction(url: str) -> AsyncIterator[tuple[Any, str]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection, "%s"


@asynccontextmanager
async def _mysql_transaction(url: str) -> AsyncIterator[tuple[Any, str]]:
    parts = urlsplit(url)
    connection: Any = await asyncmy.connect(
        host=parts.hostname, port=parts.port, user=parts.username, db=parts.path.strip("/")
    )
    try:
        await connection.begin()
        yield connection, "%s"
        await connection.commit()
    finally:
        connection.close()


async def insert_effect(tx: Any, style: str, job_id: str, attempt: int) -> None:
    text = f"insert into ledger (job_id, attempt, effect, at) values ({style}, {style}, 'done', 0)"
    cursor = await tx.cursor() if style == "?" else tx.cursor()
    async with cursor:
        await cursor.execute(text, (job_id, attempt))
