"""Reports a worker's state to the table of workers, and stuck slots to the log."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.store.workers import HEARTBEAT, heartbeat, register_worker
from stagepost.worker.claimer import Claimer
from stagepost.worker.executor import Executor
from stagepost.worker.leased_attempts import LeasedAttempts
from stagepost.worker.stop_requests import StopRequests

__all__ = ["Reporter"]

log = logging.getLogger(__name__)


class Reporter(Service):
    """Writes a report every few seconds. It is for people: no lease and no rescue depends on it."""

    def __init__(
        self,
        store: AsyncStore,
        attempts: LeasedAttempts,
        executor: Executor,
        claimer: Claimer,
        requests: StopRequests,
        *,
        owner: str,
        slots: int,
        queues: Sequence[str],
        tasks: Sequence[str],
        loops: Callable[[], Sequence[str]],
        clock: Clock,
        interval: float = HEARTBEAT.total_seconds(),
    ) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._attempts = attempts
        self._executor = executor
        self._claimer = claimer
        self._requests = requests
        self._owner = owner
        self._slots = slots
        self._queues = queues
        self._tasks = tasks
        self._loops = loops
        self._clock = clock
        self._stuck = 0
        self._waiting_passes = 0
        """Passes in a row that found every slot held by a handler that waits."""

    async def run_once(self) -> None:
        """Write one report. A worker without a row, because it is new or was deleted, describes itself first."""
        self._check_stuck_slots()
        self._check_waiting_slots()
        looked_ago = timedelta(seconds=self._clock.monotonic() - self._claimer.looked_at)
        report = heartbeat(self._owner, running=self._executor.running, looked_ago=looked_ago)
        if not await self._store.run(report, patience_seconds=1):
            await self._store.run(
                register_worker(
                    self._owner,
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    queues=self._queues,
                    tasks=self._tasks,
                    slots=self._slots,
                    loops=self._loops(),
                ),
                patience_seconds=1,
            )

    def _check_stuck_slots(self) -> None:
        """Log handlers that continue after their timeout; when they hold all slots, stop this process."""
        stuck, slots = self._executor.threads.stuck, self._slots
        if stuck > self._stuck:
            log.warning("%d of %d slots are held by handlers that did not stop when asked to", stuck, slots)
        self._stuck = stuck
        if stuck >= slots and not self._requests.must_restart:
            log.error("handlers that did not stop hold all slots: this worker ends so that it can be restarted")
            self._requests.request_restart()

    def _check_waiting_slots(self) -> None:
        """Log that handlers which wait for other work hold every slot, once, when a second pass finds the same."""
        running = [attempt.running for attempt in self._attempts.all() if not attempt.has_outcome]
        waiting = [one for one in running if one is not None and one.identity.waits_for]
        self._waiting_passes = self._waiting_passes + 1 if len(waiting) >= self._slots else 0
        if self._waiting_passes == 2:
            log.error(
                "all %d slots are held by handlers that wait, the first for %s: no other job can start here. If they "
                "wait for jobs of these queues, start another worker, and use job.submit with job.then, or a pipeline",
                len(waiting), "".join((waiting[0].identity.waits_for or [])[:1]),
            )  # fmt: skip
