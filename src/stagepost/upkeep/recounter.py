"""Compares counts with the rows they count."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable

from stagepost.database.async_store import AsyncStore
from stagepost.database.store import Store
from stagepost.errors import StoreUnavailable
from stagepost.loops.service import Service
from stagepost.model.lifecycle import LIVE, JobState
from stagepost.store.counting import PARTS, Drift, count_by_state, drop_empty, find_drift, repair
from stagepost.upkeep.leader import Leader

__all__ = ["Recounter"]

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 600.0
MOST_ROWS = 10_000_000
"""What holds more is left to `stagepost queues recount`: reading it takes longer than a call may."""


class Recounter(Service):
    """Counts one part of the jobs row by row in each pass, the next part in the next; within an hour all of them.

    That can take seconds, on a connection of its own: where all work goes through one, it would hold up the rest.
    """

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        *,
        open_store: Callable[[], Store] | None = None,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._leader = leader
        self._open_store = open_store
        self._parts = deque(PARTS)
        self._parts.rotate(random.randrange(len(PARTS)))  # noqa: S311 - leaders that change often get to all of them

    def wake(self) -> None:
        """Wait all the same: a new leader has more urgent things to do."""

    async def run_once(self) -> list[Drift]:
        """Recount the next part; returns the counts that were wrong, which they are no more."""
        if not self._leader.is_leading:
            return []
        part = self._parts[0]
        self._parts.rotate(-1)
        await self._store.run(drop_empty())
        if _rows(part, await self._store.run(count_by_state())) > MOST_ROWS:
            return []
        try:
            drifts = await self._recount(part)
        except StoreUnavailable as error:
            log.warning("the counts of %s jobs could not be checked: %s", part or "live", error)
            return []
        for drift in drifts:
            log.error(
                "%s counted %d jobs as %s, and has %d; the count is corrected",
                drift.scope, drift.counted, drift.class_name, drift.found,
            )  # fmt: skip
        return drifts

    async def _recount(self, part: JobState | None) -> list[Drift]:
        if self._open_store is None:
            return await _recount_in(self._store, part)
        own = AsyncStore(self._open_store())
        try:
            return await _recount_in(own, part)
        finally:
            own.abort()  # which has something to break off only where this pass was cancelled
            own.store.close()


async def _recount_in(store: AsyncStore, part: JobState | None) -> list[Drift]:
    """Look first, without locking: to repair anything takes as long again, and one at a time."""
    if not await store.run(find_drift(part), patience_seconds=0):
        return []
    return await store.run(repair(part), patience_seconds=0)


def _rows(part: JobState | None, counts: dict[JobState, int]) -> int:
    return sum(counts[state] for state in (LIVE if part is None else {part}))
