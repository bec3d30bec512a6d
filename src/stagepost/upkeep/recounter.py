"""Compares counts with the rows they count: those of jobs, of unfinished batches and of gates."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from stagepost.database.async_store import AsyncStore
from stagepost.database.store import Store
from stagepost.errors import StoreUnavailable
from stagepost.loops.service import Service
from stagepost.model.lifecycle import LIVE, JobState
from stagepost.store.batches import unfinished_ids
from stagepost.store.counting import (
    PARTS,
    Drift,
    count_by_state,
    drop_empty,
    find_batch_drift,
    find_drift,
    repair,
    repair_batch,
)
from stagepost.store.gates import GateCount, count_gates, repair_gate
from stagepost.upkeep.leader import Leader

__all__ = ["Recounter"]

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 200.0
"""Checks batches every ten minutes, gates too, and all jobs within an hour."""
MOST_ROWS = 10_000_000
"""A part with more rows is left to `stagepost queues recount`, because reading it takes longer than a call may."""
MOST_AT_ONCE = 100

Check = Callable[[], Awaitable[Sequence[Drift | GateCount]]]


class Recounter(Service):
    """Counts rows, reports counts that differ, and corrects them.

    Each pass makes one check, so that a check that fails does not prevent the others. In turn, it checks one part of
    the jobs (the next part each time), all unfinished batches, and all gates.
    """

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        *,
        open_store: Callable[[], Store] | None = None,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        """`open_store` opens a separate connection for counting jobs, which takes seconds and would delay the rest."""
        super().__init__(interval=interval)
        self._store = store
        self._leader = leader
        self._open_store = open_store
        parts = deque(PARTS)
        parts.rotate(random.randrange(len(PARTS)))  # noqa: S311 - so that leaders that change often check all parts
        self._checks: deque[Check] = deque()
        for part in parts:
            self._checks += [partial(self.recount_jobs, part), self.recount_batches, self.recount_gates]

    def wake(self) -> None:
        """Wait all the same: a new leader has more urgent work."""

    async def run_once(self) -> Sequence[Drift | GateCount]:
        """Make the next check; returns the counts that were wrong and have been corrected."""
        if not self._leader.is_leading:
            return []
        check = self._checks[0]
        self._checks.rotate(-1)
        return await check()

    async def recount_jobs(self, part: JobState | None) -> list[Drift]:
        """Count the jobs in one final state, or with None all live jobs."""
        await self._store.run(drop_empty())
        if _rows(part, await self._store.run(count_by_state())) > MOST_ROWS:
            return []
        try:
            drifts = await self._recount(part)
        except StoreUnavailable as error:
            log.warning("the counts of %s jobs could not be checked: %s", part or "live", error)
            return []
        _report(drifts)
        return drifts

    async def recount_batches(self) -> list[Drift]:
        """Count the items of every unfinished batch."""
        drifts: list[Drift] = []
        after: str | None = ""
        while after is not None and self._leader.is_leading and not self.is_stopping:
            page = await self._store.run(unfinished_ids(after=after, most=MOST_AT_ONCE))
            for batch_id in page:
                if await self._store.run(find_batch_drift(batch_id)):
                    drifts += await self._store.run(repair_batch(batch_id))
            after = page[-1] if len(page) == MOST_AT_ONCE else None
        _report(drifts)
        return drifts

    async def recount_gates(self) -> list[GateCount]:
        """Count the unfinished batches under every gate."""
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

    async def _recount(self, part: JobState | None) -> list[Drift]:
        if self._open_store is None:
            return await _recount_in(self._store, part)
        own = AsyncStore(self._open_store())
        try:
            return await _recount_in(own, part)
        finally:
            own.abort()  # aborts something only if this pass was cancelled
            own.store.close()


async def _recount_in(store: AsyncStore, part: JobState | None) -> list[Drift]:
    """Look without locks first, because a repair takes as long again and blocks other repairs."""
    if not await store.run(find_drift(part), patience_seconds=0):
        return []
    return await store.run(repair(part), patience_seconds=0)


def _report(drifts: Sequence[Drift]) -> None:
    for drift in drifts:
        log.error(
            "%s counted %d jobs as %s, and has %d; the count is corrected",
            drift.scope, drift.counted, drift.class_name, drift.found,
        )  # fmt: skip


def _rows(part: JobState | None, counts: dict[JobState, int]) -> int:
    return sum(counts[state] for state in (LIVE if part is None else {part}))
