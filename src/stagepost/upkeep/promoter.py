"""Queues what has become due and lets limited jobs through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from stagepost.store.async_store import AsyncStore
from stagepost.store.leases import next_due, promote_due, unblock, waiting_jobs
from stagepost.upkeep.service import Service

__all__ = ["Promoter"]

LONGEST_SECONDS = 1.0
SHORTEST_SECONDS = 0.01
MOST_AT_ONCE = 1000


class Promoter(Service):
    """Sleeps until the next job is due, at most a second. Every worker has one: a due job never waits for a leader."""

    def __init__(self, store: AsyncStore, *, on_promoted: Callable[[], None] = lambda: None) -> None:
        super().__init__(interval=LONGEST_SECONDS)
        self._store = store
        self._on_promoted = on_promoted
        self._pass = asyncio.Lock()

    async def run_once(self) -> int:
        """Queue what is due; returns how many jobs became claimable."""
        # One pass at a time: each skips what another has locked, and would report that nothing is due.
        async with self._pass:
            return await self._promote()

    async def _promote(self) -> int:
        # Looked for first: mostly there is nothing to do, and looking takes no transaction and no lock.
        due, is_any_blocked = await self._store.run(waiting_jobs())
        is_any_due = due is not None and due <= timedelta(0)
        promoted = await self._store.run(promote_due(most=MOST_AT_ONCE)) if is_any_due else 0
        unblocked = await self._store.run(unblock()) if is_any_blocked or promoted else 0
        if promoted or unblocked:
            self._on_promoted()
        if is_any_due:
            due = await self._store.run(next_due())
        seconds = LONGEST_SECONDS if due is None else due.total_seconds()
        self.interval = min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)
        return promoted + unblocked
