"""What several checks need."""

from __future__ import annotations

import asyncio
from typing import Any

from stagepost import Worker
from stagepost.contrib.django import app
from stagepost.errors import JobNotFound

__all__ = ["exists", "work"]

LIMIT = 120.0
"""Seconds after which a check that hangs is broken off."""


def work(**options: Any) -> None:
    """Run a worker until nothing is due."""

    async def run() -> None:
        async with asyncio.timeout(LIMIT):
            await Worker(app, **options).run(until_idle=True)

    try:
        asyncio.run(run())
    finally:
        app.close()


def exists(job_id: str) -> bool:
    """Whether a job is stored, as the current transaction sees it."""
    try:
        app.client.job(job_id)
    except JobNotFound:
        return False
    return True
