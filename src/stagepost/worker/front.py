"""Keeps the front of queues free of jobs that may not start, so that claims do not walk over them again and again."""

from __future__ import annotations

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.loops.signals import Signals
from stagepost.model.limits import LimitRules
from stagepost.store.letting_through import let_through
from stagepost.store.limits import hold_front
from stagepost.worker.claim_positions import SLOW_SECONDS, SLOW_SECONDS_PER_JOB

__all__ = ["FrontClearer"]

MOST_CHUNKS = 20
"""How many parts of a queue are looked at between two claims."""
LOOK_AGAIN_SECONDS = 1.0
"""How long a slow queue is left alone in which nothing was to be held."""


class FrontClearer:
    """Looks at the first jobs of a queue after a claim that held some of them, or that was slow."""

    def __init__(self, store: AsyncStore, rules: LimitRules, clock: Clock, signals: Signals) -> None:
        self._store = store
        self._rules = rules
        self._clock = clock
        self._look_again_at: dict[str, float] = {}
        self._signals = signals

    def is_slow(self, seconds: float, jobs: int) -> bool:
        """Say whether a claim that started at the beginning has walked over much that it could not take."""
        return seconds > SLOW_SECONDS + SLOW_SECONDS_PER_JOB * jobs

    async def clear(self, queue: str, held: frozenset[str], *, is_slow: bool) -> bool:
        """Hold what may not start; `held` is what a claim held jobs on. Says whether to claim again at once."""
        now = self._clock.monotonic()
        if not held and (not is_slow or now < self._look_again_at.get(queue, now)):
            return False
        names, cleared = set(held), 0
        for _ in range(MOST_CHUNKS):
            front = await self._store.run(hold_front(queue, self._rules))
            names |= front.names
            cleared += front.held
            if front.held * 2 <= front.looked_at or not front.held:
                break
        if not cleared:
            self._look_again_at[queue] = now + LOOK_AGAIN_SECONDS
        # Afterwards: what ended before a job was held could not let that through.
        await self.open(names)
        return bool(held) or cleared > 0

    async def open(self, names: set[str] | frozenset[str]) -> None:
        """Let jobs through that were just held, if there is room now."""
        through = await self._store.run(let_through(names, self._rules)) if names else 0
        if through:
            self._signals.jobs_scheduled.send()
