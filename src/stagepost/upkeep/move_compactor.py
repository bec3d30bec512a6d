"""Adds moves, the recorded changes of counts, to the counts and deletes them."""

from __future__ import annotations

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.store.counting import fold
from stagepost.upkeep.leader import Leader

__all__ = ["MoveCompactor"]

SHORTEST_SECONDS = 1.0
LONGEST_SECONDS = 10.0
COST_SHARE = 20
MOST_AT_ONCE = 1000


class MoveCompactor(Service):
    """Keeps the moves few, so that reading a count stays cheap.

    It runs less and less often while there are none. While another transaction is held open, PostgreSQL must keep
    deleted rows and each pass reads them again; the pauses then grow so that passes take a twentieth of the time.
    """

    def __init__(self, store: AsyncStore, leader: Leader, *, clock: Clock) -> None:
        super().__init__(interval=LONGEST_SECONDS)
        self._store = store
        self._leader = leader
        self._clock = clock

    async def run_once(self) -> int:
        """Fold all moves into counts; returns how many there were."""
        if not self._leader.is_leading:
            self.interval = LONGEST_SECONDS
            return 0
        began = self._clock.monotonic()
        folded = await self._fold()
        idle = SHORTEST_SECONDS if folded else min(2 * self.interval, LONGEST_SECONDS)
        self.interval = max(idle, COST_SHARE * (self._clock.monotonic() - began))
        return folded

    async def _fold(self) -> int:
        folded = 0
        while self._leader.is_leading and not self.is_stopping:
            now = await self._store.run(fold(most=MOST_AT_ONCE))
            folded += now
            if now < MOST_AT_ONCE:
                break
        return folded
