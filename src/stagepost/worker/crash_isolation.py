"""Runs jobs that have crashed twice one at a time, because one of them may crash the others' worker again."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.model.job import LeasedJob
from stagepost.model.outcome import SUSPECT_CRASHES, Released, Snoozed
from stagepost.store.leases import mark_started
from stagepost.worker.finisher import Finisher
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts

__all__ = ["CrashIsolation", "is_suspect"]

TURN_SECONDS = 0.25
"""How long a suspect may run before the suspects that wait behind it are rescheduled for other workers."""
SHORTEST_SECONDS, SECONDS_PER_JOB = 0.5, 0.1
"""The shortest delay of rescheduled suspects, and how much each waiting one adds to the longest delay."""


def is_suspect(job: LeasedJob) -> bool:
    """Whether one more crash would make this job a dead letter."""
    return job.crashes >= SUSPECT_CRASHES


class CrashIsolation(Service):
    """Runs suspects one after the other.

    The store knows that the waiting ones have not started. If the worker dies, only the running suspect is charged
    with the crash.
    """

    def __init__(
        self,
        store: AsyncStore,
        attempts: LeasedAttempts,
        finisher: Finisher,
        *,
        start: Callable[[list[LeasedAttempt]], None],
        clock: Clock,
    ) -> None:
        super().__init__(interval=3600)
        self._store = store
        self._attempts = attempts
        self._finisher = finisher
        self._start = start
        self._clock = clock
        self._line: deque[LeasedAttempt] = deque()
        self._turn: LeasedAttempt | None = None
        self._began_at = 0.0

    def start(self, attempts: list[LeasedAttempt]) -> None:
        """Start leased attempts; suspects wait in line."""
        if suspects := [attempt for attempt in attempts if is_suspect(attempt.job)]:
            self._line.extend(suspects)
            self.wake()
            attempts = [attempt for attempt in attempts if not is_suspect(attempt.job)]
        self._start(attempts)

    def give_back(self) -> None:
        """Return the suspects in line to their queues."""
        while self._line:
            self._finisher.put(self._line.popleft(), Released())

    async def run_once(self) -> int:
        """Start the next suspect unless one is running; returns how many were started."""
        self._drop_lost()
        is_free = self._turn is None or self._turn not in self._attempts
        following = self._line[0] if is_free and self._line else None
        if following is None:
            self._snooze_if_late()
        elif await self._mark_started(following):
            self._line.popleft()
            self._turn, self._began_at = following, self._clock.monotonic()
            self._start([following])
        self.interval = TURN_SECONDS if self._line else 3600
        return int(following is not None)

    async def _mark_started(self, attempt: LeasedAttempt) -> bool:
        await self._store.run(mark_started(attempt.job), patience_seconds=0)
        return bool(self._line) and self._line[0] is attempt  # otherwise it was returned to its queue meanwhile

    def _snooze_if_late(self) -> None:
        """Reschedule the suspects in line if the running one takes long; one that has an outcome ends soon."""
        if self._turn is None or self._turn.has_outcome or self._clock.monotonic() - self._began_at < TURN_SECONDS:
            return
        longest = SHORTEST_SECONDS + SECONDS_PER_JOB * len(self._line)
        while self._line:
            delay = random.uniform(SHORTEST_SECONDS, longest)  # noqa: S311 - spreads the retries
            self._finisher.put(self._line.popleft(), Snoozed(timedelta(seconds=delay)))

    def _drop_lost(self) -> None:
        for attempt in [attempt for attempt in self._line if attempt.is_lost]:
            self._line.remove(attempt)
            self._finisher.put(attempt, Released())

    def note_removed(self, attempts: list[LeasedAttempt]) -> None:
        """Let the next suspect start if the one that ran is settled or lost."""
        if self._turn is not None and self._turn in attempts:
            self._turn = None
            self.wake()
