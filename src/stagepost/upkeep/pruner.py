"""Deletes old history."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from stagepost.database.async_store import AsyncStore
from stagepost.database.statement import Operation
from stagepost.loops.service import Service
from stagepost.store.batches import prune_batches
from stagepost.store.events import number_events, prune_events
from stagepost.store.history import prune
from stagepost.store.rates import prune_rates
from stagepost.store.runs import prune_runs
from stagepost.store.unique_keys import free_stale_keys
from stagepost.store.workers import forget_silent, unknown_tasks
from stagepost.upkeep.leader import Leader

__all__ = ["Pruner"]

log = logging.getLogger(__name__)

SILENT = timedelta(minutes=10)
UNSERVED = timedelta(minutes=5)
MOST_AT_ONCE = 1000
KEY_PAGES = 10
"""How many pages of unique keys are checked in one pass: there may be a key for every live job."""


class Pruner(Service):
    """Deletes history and events in small chunks, and logs jobs whose task no worker knows."""

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        *,
        history_days: float,
        events_days: float = 0,
        events_limit: int = 0,
        interval: float = 60.0,
    ) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._leader = leader
        self._keep = timedelta(days=history_days)
        self._keep_events = timedelta(days=events_days)
        self._events_limit = events_limit
        self._last_key = ""

    async def run_once(self) -> int:
        """Delete everything that is too old; returns how many rows."""
        if not self._leader.is_leading:
            return 0
        pruned = 0
        for pruning in (prune, prune_batches, prune_runs):
            pruned += await self._prune_until_none(pruning)
        await self._prune_events()
        await self._page_through(prune_rates)
        await self._free_keys()
        await self._store.run(forget_silent(SILENT))
        for task in await self._store.run(unknown_tasks(UNSERVED)):
            log.error(
                "at least %d jobs of task %r wait in queue %r, and no running worker knows that task. Start one that "
                "does",
                task.jobs,
                task.task_name,
                task.queue_name,
            )
        return pruned

    async def _prune_until_none(self, pruning: Callable[..., Operation[int]]) -> int:
        pruned = 0
        while self._keep and self._leader.is_leading and not self.is_stopping:
            removed = await self._store.run(pruning(self._keep, most=MOST_AT_ONCE))
            if not removed:
                break
            pruned += removed
        return pruned

    async def _prune_events(self) -> None:
        """Number events that nobody has read, since only numbered ones can be deleted, then delete."""
        pruning = prune_events(self._keep_events, keep=self._events_limit, most=MOST_AT_ONCE)
        for step, enough in ((number_events(most=MOST_AT_ONCE), MOST_AT_ONCE), (pruning, 1)):
            while self._leader.is_leading and not self.is_stopping:
                if await self._store.run(step) < enough:
                    break

    async def _free_keys(self) -> None:
        """Free unique keys whose job was deleted by hand; otherwise they could never be used again."""
        freed = 0
        for _ in range(KEY_PAGES):
            page = await self._store.run(free_stale_keys(after=self._last_key, most=MOST_AT_ONCE))
            freed += page.freed
            self._last_key = page.until or ""
            if page.until is None or self.is_stopping:
                break
        if freed:
            log.warning("%d unique keys can be used again: their jobs were deleted from the database by hand", freed)

    async def _page_through(self, paging: Callable[..., Operation[str | None]]) -> None:
        after: str | None = ""
        while after is not None and not self.is_stopping:
            after = await self._store.run(paging(after=after, most=MOST_AT_ONCE))
