"""Finishes what a dead worker, producer or canceller left undone in a batch."""

from __future__ import annotations

import logging

from stagepost.database.async_store import AsyncStore
from stagepost.errors import BatchNotFound
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.model.batch import BatchState
from stagepost.store.batches import cancelled_batches, idle_batches, unfinished_ids
from stagepost.store.cancelling import cancel_items
from stagepost.store.concluding import follow_up, try_conclude
from stagepost.upkeep.leader import Leader

__all__ = ["BatchRescuer"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 100
MOST_LEVELS = 50
"""How many levels of a tree of cancelled children one pass cancels; the next pass continues."""


class BatchRescuer(Service):
    """Concludes batches that have no live items, and continues cancellations."""

    def __init__(self, store: AsyncStore, leader: Leader, signals: Signals, *, interval: float = 2.0) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._leader = leader
        self._signals = signals

    async def run_once(self) -> int:
        """Finish what was left undone; returns how many batches were concluded."""
        if not self._leader.is_leading or not await self._store.run(unfinished_ids(most=1)):
            return 0
        await self._cancel()
        done = await self._conclude()
        if done:
            self._signals.jobs_ready.send()
        return done

    async def _conclude(self) -> int:
        done, after = 0, ""
        while not self.is_stopping:
            page = await self._store.run(idle_batches(after=after, most=MOST_AT_ONCE))
            for batch_id in page:
                done += await self._conclude_up(batch_id)
            if len(page) < MOST_AT_ONCE:
                break
            after = page[-1]
        return done

    async def _conclude_up(self, batch_id: str | None) -> int:
        """Conclude a batch and, if that ended the job whose children it held, the batch of that job."""
        done = 0
        while batch_id is not None:
            batch = await self._store.run(try_conclude(batch_id))
            done += batch is not None and batch.state is BatchState.DONE
            batch_id = None if batch is None else follow_up(batch)
        return done

    async def _cancel(self) -> None:
        """Continue cancelled batches, then in the same pass the batches of the next level down."""
        started: set[str] = set()
        for _ in range(MOST_LEVELS):
            new = [batch_id for batch_id in await self._cancelled() if batch_id not in started]
            if not new:
                break
            for batch_id in new:
                await self._cancel_items(batch_id)
            started.update(new)

    async def _cancelled(self) -> list[str]:
        found: list[str] = []
        after: str | None = ""
        while after is not None and not self.is_stopping:
            page = await self._store.run(cancelled_batches(after=after, most=MOST_AT_ONCE))
            found += page
            after = page[-1] if len(page) == MOST_AT_ONCE else None
        return found

    async def _cancel_items(self, batch_id: str) -> None:
        after: str | None = ""
        while after is not None and not self.is_stopping:
            try:
                after = await self._store.run(cancel_items(batch_id, after=after))
            except BatchNotFound:
                break
