"""Turns free slots into leases."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.database.statement import Operation
from stagepost.errors import StoreError
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.model.job import LeasedJob
from stagepost.model.limits import NO_RULES, LimitRules
from stagepost.store.leases import claim, release_unknown_leases
from stagepost.store.limits import claim_checked
from stagepost.store.queues import ALL_QUEUES, claim_limited, queue_settings
from stagepost.worker.claim_positions import ClaimPositions
from stagepost.worker.front import FrontClearer
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts

__all__ = ["Claimer"]

MOST_AT_ONCE = 1000
EMPTY_SECONDS = 0.02
"""Shortest time between passes that find nothing, however often the loop is woken."""
SETTINGS_SECONDS = 1.0


class Claimer(Service):
    """Claims as many jobs as there is room for, queue by queue; polls less and less often while it finds none."""

    def __init__(
        self,
        store: AsyncStore,
        attempts: LeasedAttempts,
        signals: Signals,
        *,
        queues: Sequence[str],
        task_names: Sequence[str],
        owner: str,
        lease: timedelta,
        room: Callable[[], int],
        start: Callable[[list[LeasedAttempt]], None],
        clock: Clock,
        poll_shortest_seconds: float,
        poll_longest_seconds: float,
        rules: LimitRules = NO_RULES,
    ) -> None:
        super().__init__(interval=poll_shortest_seconds)
        self.looked_at = clock.monotonic()
        """When it last asked the store for jobs and got a reply."""
        self.began_at = self.looked_at
        """When its last pass began, whether or not the store replied."""
        self.empty_passes = 0
        """Number of passes in a row that asked for jobs of all queues and found none."""
        self._is_full = False
        self._store = store
        self._attempts = attempts
        self._queues = deque(queues)
        self._task_names = tuple(task_names)
        self._owner = owner
        self._lease = lease
        self._room = room
        self._start = start
        self._clock = clock
        self._shortest, self._longest = poll_shortest_seconds, poll_longest_seconds
        self.may_have_unknown_leases = False
        """Whether the reply to a claim was lost, so that this worker may hold leases it does not know of."""
        self._limited: frozenset[str] = frozenset()
        self._positions = {queue: ClaimPositions() for queue in queues}
        self._settings_read_at = float("-inf")
        self._rules = rules
        self._signals = signals
        self._front = FrontClearer(store, rules, clock, self._signals)
        self._blocked_on: frozenset[str] = frozenset()
        self._was_slow = False

    async def run_once(self) -> int:
        """Fill the free room from all queues; returns how many jobs were claimed."""
        self.began_at = self._clock.monotonic()
        if self.may_have_unknown_leases:
            await self.release_unknown_leases()
        await self._read_settings()
        looks_everywhere = all(marks.at(self._clock.monotonic()) is None for marks in self._positions.values())
        claimed = wanted = 0
        blocked_some = False
        for _ in range(len(self._queues)):
            slots = min(self._room(), MOST_AT_ONCE)
            if slots <= 0 or self.is_stopping:
                break
            wanted += slots
            async with self._attempts.claiming:
                claimed += await self._claim(self._queues[0], slots)
            blocked_some |= await self._front.clear(self._queues[0], self._blocked_on, is_slow=self._was_slow)
            self._queues.rotate(-1)
        looked = bool(wanted) or not self._queues
        self.empty_passes = self.empty_passes + 1 if looked and not claimed and looks_everywhere else 0
        self._is_full = claimed >= wanted
        self._choose_interval(claimed=claimed, wanted=wanted)
        if blocked_some:
            self.empty_passes, self.interval = 0, 0.0  # jobs that can start may be behind the blocked ones
        return claimed

    async def release_unknown_leases(self) -> None:
        """Return jobs that were leased without this worker's knowledge."""
        async with self._attempts.claiming:
            await self._store.run(release_unknown_leases(owner=self._owner, held=self._held_fences()))
        self.may_have_unknown_leases = False

    def wake_if_full(self) -> None:
        """Claim again if there may be more jobs, because the last pass stopped for lack of room."""
        if self._is_full:
            self.wake()

    async def _pause(self) -> None:
        if self.empty_passes > 1 and not self.is_stopping:
            # Every worker receives every hint, and most find nothing: many hints must not cause as many claims.
            await asyncio.sleep(EMPTY_SECONDS)
        await super()._pause()

    async def _claim(self, queue: str, slots: int) -> int:
        asked_at = self._clock.monotonic()
        start = self._positions[queue].at(asked_at)
        # Until the reply arrives: if it is lost, jobs are leased to this worker that it does not know of.
        self.may_have_unknown_leases = True
        try:
            jobs, self._blocked_on = await self._ask(queue, slots, start)
        except StoreError:
            self.interval = self._longest
            raise
        self.may_have_unknown_leases = False
        self.looked_at = self._clock.monotonic()
        self._positions[queue].note(jobs, wanted=slots, began=asked_at, ended=self.looked_at, marked=start is not None)
        self._was_slow = start is None and self._front.is_slow(self.looked_at - asked_at, len(jobs))
        self._take(jobs, lease_ends=asked_at + self._lease.total_seconds())
        return len(jobs)

    async def _ask(
        self, queue: str, slots: int, start: Mapping[int, int] | None
    ) -> tuple[list[LeasedJob], frozenset[str]]:
        """Claim jobs; returns them and what the claim blocked other jobs on."""
        if not self._rules.is_limited:
            return await self._store.run(self._leasing(queue, slots, start), patience_seconds=0), frozenset()
        operation = claim_checked(
            queue,
            owner=self._owner,
            task_names=self._task_names,
            slots=slots,
            lease=self._lease,
            rules=self._rules,
            marks=start,
            is_limited=queue in self._limited,
        )
        claimed = await self._store.run(operation, patience_seconds=0)
        if claimed.is_any_scheduled:
            self._signals.jobs_scheduled.send()
        return claimed.jobs, claimed.blocked_on

    def _leasing(self, queue: str, slots: int, start: Mapping[int, int] | None) -> Operation[list[LeasedJob]]:
        owner, names, lease = self._owner, self._task_names, self._lease
        if queue in self._limited:
            return claim_limited(queue, owner=owner, task_names=names, slots=slots, lease=lease)
        return claim(queue, owner=owner, task_names=names, slots=slots, lease=lease, marks=start)

    async def _read_settings(self) -> None:
        """Read from time to time which queues have limits; a claim from the others takes one statement."""
        if self._clock.monotonic() - self._settings_read_at < SETTINGS_SECONDS:
            return
        rows = await self._store.run(queue_settings([*self._queues, ALL_QUEUES]), patience_seconds=0)
        limited = {settings.name for settings in rows.values() if settings.is_limited or settings.paused_at is not None}
        self._limited = frozenset(self._queues if ALL_QUEUES in limited else limited)
        self._settings_read_at = self._clock.monotonic()

    def _take(self, jobs: list[LeasedJob], *, lease_ends: float) -> None:
        attempts = [LeasedAttempt(job, lease_ends) for job in jobs]
        self._attempts.add(attempts)
        self._start(attempts)

    def _held_fences(self) -> list[tuple[str, int]]:
        return [attempt.fence for attempt in self._attempts.all()]

    def _choose_interval(self, *, claimed: int, wanted: int) -> None:
        if claimed and claimed >= wanted:
            self.interval = 0.0 if self._room() > 0 else self._longest  # no room: a free slot wakes this loop
        elif claimed:
            self.interval = self._shortest
        else:
            self.interval = min(max(self.interval, self._shortest) * 1.5, self._longest)
