"""Finishes batches whose last item has ended on this worker."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.errors import BatchNotFound
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.model.batch import BatchState
from stagepost.store.concluding import follow_up, try_conclude

__all__ = ["Concluder"]

log = logging.getLogger(__name__)

SHORTEST_SECONDS = 0.2
"""The least time between two checks of one batch: each locks its row, and items of a large batch end all the time."""
IDLE_SECONDS = 3600.0


class Concluder(Service):
    """Checks batches whose items this worker has ended: soon after the first item, and always after the last.

    The check is not part of the transaction that ends an item, because all workers would wait for the batch's row. If
    the worker dies before the check, the leader's `BatchRescuer` finishes the batch.
    """

    def __init__(self, store: AsyncStore, signals: Signals, *, clock: Clock) -> None:
        super().__init__(interval=IDLE_SECONDS)
        self._store = store
        self._clock = clock
        self._signals = signals
        self._noted: set[str] = set()
        self._looked_at: dict[str, float] = {}
        self._looking = 0

    @property
    def pending(self) -> int:
        """Number of batches that are yet to be checked, or are being checked."""
        return len(self._noted) + self._looking

    def note(self, batch_ids: Iterable[str | None]) -> None:
        """Check these batches soon: items of theirs have ended, and that is committed."""
        noted = {batch_id for batch_id in batch_ids if batch_id is not None} - self._noted
        if noted:
            self._noted |= noted
            self.wake()

    async def run_once(self) -> int:
        """Check each batch that was not checked a moment ago; returns how many are done."""
        now = self._clock.monotonic()
        self._looked_at = {one: at for one, at in self._looked_at.items() if now - at < SHORTEST_SECONDS}
        concluded, errors = 0, []
        for batch_id in sorted(self._noted - self._looked_at.keys()):
            try:
                concluded += await self._conclude(batch_id)
            except Exception as error:  # noqa: BLE001 - raised below, after the other batches
                errors.append(error)
        waits = [self._looked_at[one] + SHORTEST_SECONDS - now for one in self._noted if one in self._looked_at]
        self.interval = max(0.01, min(waits)) if waits else 0.0 if self._noted else IDLE_SECONDS
        if concluded:
            self._signals.jobs_ready.send()
        if errors:
            raise errors[0]
        return concluded

    async def flush(self) -> None:
        """Check all remaining batches now."""
        self._looked_at.clear()
        await self.run_once()

    async def _conclude(self, batch_id: str) -> bool:
        # Before the check: an item that ends meanwhile requires another one.
        self._noted.discard(batch_id)
        self._looked_at[batch_id] = self._clock.monotonic()
        self._looking += 1
        is_seen = False
        try:
            batch = await self._store.run(try_conclude(batch_id))
            is_seen = batch is not None
        except BatchNotFound:
            is_seen = True
            return False
        finally:
            self._looking -= 1
            if not is_seen:  # another transaction has locked its row, or the store failed
                self._noted.add(batch_id)
        if batch is None:
            return False
        self.note([follow_up(batch)])
        return batch.state is BatchState.DONE
