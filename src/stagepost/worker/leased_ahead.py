"""Gives jobs that were leased ahead back to the queue when no slot comes free for them."""

from __future__ import annotations

from collections.abc import Collection

from stagepost.clock import monotonic
from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.store.workers import other_workers
from stagepost.worker.executor import Executor
from stagepost.worker.pace import Pace

__all__ = ["LeasedAhead"]

LOOK_SECONDS = 0.025
ALONE_SECONDS = 1.0
"""How often a worker with no other beside it looks whether one has started."""
IDLE_SECONDS = 3600.0


class LeasedAhead(Service):
    """Watches the jobs that wait for a slot of this worker, so that long jobs do not keep them from other workers.

    A job that a broker delivered is published again. Its first message stays unacknowledged until a slot becomes free,
    so that the broker does not deliver the next one here (`Receiver`).
    """

    def __init__(
        self, store: AsyncStore, executor: Executor, pace: Pace, *, owner: str, queues: Collection[str]
    ) -> None:
        super().__init__(interval=IDLE_SECONDS)
        self.given_back = 0
        """How many jobs were given back so far."""
        self._store = store
        self._executor = executor
        self._pace = pace
        self._owner = owner
        self._queues = queues
        self._was_late = False

    async def run_once(self) -> int:
        """Give back all that wait if they were late at two looks in a row; returns how many.

        Twice, because a process that was paused finds every job late at its first look and none at the second.
        """
        waits_since = self._executor.waits_since
        self.interval = IDLE_SECONDS if waits_since is None else LOOK_SECONDS
        is_late = waits_since is not None and self._is_late(waits_since)
        was_late, self._was_late = self._was_late, is_late
        if not (is_late and was_late):
            return 0
        if not await self._store.run(other_workers(self._owner, self._queues), patience_seconds=0):
            self.interval = ALONE_SECONDS  # nobody else could run them
            return 0
        given_back = self._executor.give_back_late()
        if given_back:
            self._pace.stall()
        self.given_back += given_back
        self.interval = IDLE_SECONDS  # more that wait wake us
        return given_back

    def _is_late(self, waits_since: float) -> bool:
        now = monotonic()
        quiet = now - max(self._executor.ended_at, waits_since)
        return self._pace.is_late(waited=now - waits_since, quiet=quiet, slots=self._executor.concurrency)
