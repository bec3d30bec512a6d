"""Queues jobs that are due, and blocked jobs that may start."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from stagepost.clock import monotonic
from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.model.limits import NO_RULES, LimitRules
from stagepost.store.leases import next_due, promote_due
from stagepost.store.unblocking import AHEAD, is_any_blocked, own_blocked_names, sweep, unblock_next

__all__ = ["Promoter"]

LONGEST_SECONDS = 1.0
LOOK_SECONDS = 0.5
"""The least time between checks of blocked jobs, however often others are due."""
SHORTEST_SECONDS = 0.01
MOST_AT_ONCE = 1000


class Promoter(Service):
    """Sleeps until the next job is due, at most a second. Every worker has one, so no due job waits for a leader."""

    def __init__(
        self,
        store: AsyncStore,
        signals: Signals,
        *,
        rules: LimitRules = NO_RULES,
        ahead: timedelta = AHEAD,
    ) -> None:
        super().__init__(interval=LONGEST_SECONDS)
        self.awaits_tokens = False
        """Whether jobs are scheduled to start when their rates have tokens again."""
        self._store = store
        self._rules = rules
        self._ahead = ahead
        self._signals = signals
        self._pass = asyncio.Lock()
        self._swept_until = ""
        self._looked_at = float("-inf")

    async def run_once(self, *, thorough: bool = False) -> int:
        """Queue jobs that are due; returns how many became claimable.

        A `thorough` pass checks every limit, rate and task that blocks jobs; other passes check some of them.
        """
        # One pass at a time: a second one would skip what the first has locked, and report that nothing is due.
        async with self._pass:
            return await self._promote(thorough=thorough)

    async def _promote(self, *, thorough: bool) -> int:
        # First a read, which needs no transaction and no lock: usually nothing is due.
        due = await self._store.run(next_due())
        is_any_due = due is not None and due <= timedelta(0)
        promoted = await self._store.run(promote_due(most=MOST_AT_ONCE)) if is_any_due else 0
        is_turn = thorough or monotonic() - self._looked_at >= LOOK_SECONDS
        through = await self._unblock(thorough=thorough) if is_turn else 0
        if promoted or through:
            self._signals.jobs_ready.send()
            due = await self._store.run(next_due())
        seconds = LONGEST_SECONDS if due is None else due.total_seconds()
        if through >= MOST_AT_ONCE:  # more may be ready
            seconds, self._looked_at = 0.0, float("-inf")
        self.interval = min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)
        return promoted + through

    async def _unblock(self, *, thorough: bool) -> int:
        self._looked_at = monotonic()
        if not self._rules.rates and not await self._store.run(is_any_blocked()):
            return 0
        waits = await self._store.run(own_blocked_names(self._rules))
        through = 0
        if waits.names:
            through = await self._store.run(unblock_next(waits.names, self._rules, ahead=self._ahead))
            waits = await self._store.run(
                own_blocked_names(self._rules)
            )  # another worker may have queued them meanwhile
        self.awaits_tokens = waits.awaits_tokens
        if thorough:
            self._swept_until = ""
        through += await self._sweep()
        while thorough and not through and self._swept_until:
            through += await self._sweep()
        return through

    async def _sweep(self) -> int:
        swept = await self._store.run(sweep(self._rules, after=self._swept_until, ahead=self._ahead))
        self._swept_until = swept.after or ""
        return swept.through
