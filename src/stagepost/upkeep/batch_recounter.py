"""Compares the counts of unfinished batches and of gates with their rows."""

from __future__ import annotations

import logging

from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.store.batches import unfinished_ids
from stagepost.store.counting import Drift, find_batch_drift, repair_batch
from stagepost.store.gates import GateCount, count_gates, repair_gate
from stagepost.upkeep.leader import Leader

__all__ = ["BatchRecounter"]

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 600.0
MOST_AT_ONCE = 100


class BatchRecounter(Service):
    """Counts unfinished batches row by row, and those under each gate; repairs what is wrong, and says so."""

    def __init__(self, store: AsyncStore, leader: Leader, *, interval: float = INTERVAL_SECONDS) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._leader = leader

    def wake(self) -> None:
        """Wait all the same: a new leader has more urgent things to do."""

    async def run_once(self) -> list[Drift | GateCount]:
        """Compare all; returns the counts that were wrong, which they are no more."""
        return [*await self._recount_batches(), *await self._recount_gates()]

    async def _recount_batches(self) -> list[Drift]:
        found: list[Drift] = []
        after: str | None = ""
        while after is not None and self._leader.is_leading and not self.is_stopping:
            page = await self._store.run(unfinished_ids(after=after, most=MOST_AT_ONCE))
            for batch_id in page:
                if await self._store.run(find_batch_drift(batch_id)):
                    found += await self._store.run(repair_batch(batch_id))
            after = page[-1] if len(page) == MOST_AT_ONCE else None
        for drift in found:
            log.error(
                "%s counted %d jobs as %s, and has %d; the count is corrected",
                drift.scope, drift.counted, drift.class_name, drift.found,
            )  # fmt: skip
        return found

    async def _recount_gates(self) -> list[GateCount]:
        wrong: list[GateCount] = []
        after: str | None = ""
        while after is not None and self._leader.is_leading and not self.is_stopping:
            page = await self._store.run(count_gates(after=after, most=MOST_AT_ONCE))
            for gate in page:
                if not gate.is_right:
                    wrong.append(await self._store.run(repair_gate(gate.name)))
            after = page[-1].name if len(page) == MOST_AT_ONCE else None
        for gate in wrong:
            log.error(
                "gate %r counted %d unfinished batches, and has %d; the count is corrected",
                gate.name, gate.counted, gate.found,
            )  # fmt: skip
        return wrong
