"""Keeps the front of queues free of jobs that cannot start, so that claims do not read past them every time."""

from __future__ import annotations

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.loops.signals import Signals
from stagepost.model.limits import LimitRules
from stagepost.store.limits import block_front
from stagepost.store.unblocking import unblock_next
from stagepost.worker.claim_positions import SLOW_SECONDS, SLOW_SECONDS_PER_JOB

__all__ = ["FrontClearer"]

MOST_CHUNKS = 20
"""How many parts of a queue are checked between two claims."""
LOOK_AGAIN_SECONDS = 1.0
"""How long to wait before checking a slow queue again in which no job had to be blocked."""


class FrontClearer:
    """Checks the first jobs of a queue after a claim that was slow or had to block some of them."""

    def __init__(self, store: AsyncStore, rules: LimitRules, clock: Clock, signals: Signals) -> None:
        self._store = store
        self._rules = rules
        self._clock = clock
        self._look_again_at: dict[str, float] = {}
        self._signals = signals

    def is_slow(self, seconds: float, jobs: int) -> bool:
        """Return whether a claim from the beginning took so long that it must have read many jobs it could not take."""
        return seconds > SLOW_SECONDS + SLOW_SECONDS_PER_JOB * jobs

    async def clear(self, queue: str, blocked_on: frozenset[str], *, is_slow: bool) -> bool:
        """Block jobs that cannot start; `blocked_on` is what a claim blocked jobs on. Says whether to claim again."""
        now = self._clock.monotonic()
        if not blocked_on and (not is_slow or now < self._look_again_at.get(queue, now)):
            return False
        names, cleared = set(blocked_on), 0
        for _ in range(MOST_CHUNKS):
            front = await self._store.run(block_front(queue, self._rules))
            names |= front.names
            cleared += front.blocked
            if front.blocked * 2 <= front.checked or not front.blocked:
                break
        if not cleared:
            self._look_again_at[queue] = now + LOOK_AGAIN_SECONDS
        # Afterwards: a job that ended before another was blocked could not unblock that one.
        await self.unblock(names)
        return bool(blocked_on) or cleared > 0

    async def unblock(self, names: set[str] | frozenset[str]) -> None:
        """Unblock jobs that were just blocked, if a slot is free now."""
        through = await self._store.run(unblock_next(names, self._rules)) if names else 0
        if through:
            self._signals.jobs_scheduled.send()
