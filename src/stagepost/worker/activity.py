"""Records that messages of a queue are being taken, so that the reconciler does not take them for lost."""

from __future__ import annotations

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.store.queue_observations import note_active

__all__ = ["Activity"]

ACTIVE_SECONDS = 1.0


class Activity:
    """Records activity in queues, at most once a second for each queue."""

    def __init__(self, store: AsyncStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._noted_at: dict[str, float] = {}

    async def note(self, queue: str, *, often: float = ACTIVE_SECONDS) -> None:
        """Record activity in a queue unless it was recorded less than `often` seconds ago."""
        now = self._clock.monotonic()
        if now - self._noted_at.get(queue, float("-inf")) >= min(often, ACTIVE_SECONDS):
            self._noted_at[queue] = now
            await self._store.run(note_active(queue))
