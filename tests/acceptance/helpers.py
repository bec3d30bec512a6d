"""Helpers that many acceptance tests use."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from stagepost import App, RetryPolicy, Worker

AT_ONCE = RetryPolicy(max_attempts=3, first_delay=timedelta(0), minimum_delay=timedelta(0), jitter=0)
"""Three attempts without waiting in between."""
LIMIT = 120.0
"""Seconds after which a test that hangs is broken off."""


def work(app: App, **options: Any) -> Worker:
    """Run a worker until nothing is due; returns it."""
    return asyncio.run(work_async(app, **options))


async def work_async(app: App, **options: Any) -> Worker:
    """Run a worker on this loop until nothing is due; returns it."""
    worker = Worker(app, **options)
    async with asyncio.timeout(LIMIT):
        await worker.run(until_idle=True)
    return worker


def write(tx: Any, note: str) -> None:
    """Write a row of the application's own, on any driver's connection."""
    cursor = tx.cursor()
    cursor.execute(f"insert into effect (note) values ('{note}')")
    cursor.close()


def notes(app: App) -> list[str]:
    """Read the application's rows that are committed."""
    with app.transaction() as tx:
        cursor = tx.cursor()
        cursor.execute("select note from effect order by note")
        found = [note for (note,) in cursor.fetchall()]
        cursor.close()
    return found
