"""Helpers for tests of `async with app.transaction()`."""

from __future__ import annotations

import asyncio
from typing import Any

from stagepost import App, Settings
from stagepost.database.async_pool import AsyncPool


async def execute(tx: Any, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement on any asynchronous driver's connection."""
    async with tx.cursor() as cursor:
        await cursor.execute(sql)
        return list(await cursor.fetchall()) if cursor.description else []


async def write_async(tx: Any, note: str) -> None:
    await execute(tx, f"insert into effect (note) values ('{note}')")


def changed(app: App, **settings: Any) -> App:
    """Another app on the same database."""
    fields = {name: getattr(app.settings, name) for name in app.settings.__struct_fields__}
    return App(settings=Settings(**{**fields, **settings}))


def pool_of_loop(app: App) -> AsyncPool:
    return app.async_transactions._pools[asyncio.get_running_loop()]


def kind_of(app: App) -> str:
    return app.store.dialect.name
