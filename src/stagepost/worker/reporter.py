"""Says hello in the workers' table, for people to look at."""

from __future__ import annotations

import logging
import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.store.workers import heartbeat, say_hello

if TYPE_CHECKING:
    from stagepost.worker.worker import Worker

__all__ = ["Reporter"]

log = logging.getLogger(__name__)


class Reporter(Service):
    """Writes what this worker is doing every few seconds; no decision rests on it."""

    def __init__(self, store: AsyncStore, worker: Worker, *, interval: float = 5.0) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._worker = worker
        self._all_waited = False

    async def run_once(self) -> None:
        """Write one report; a worker that was forgotten, or is new, says hello first."""
        worker = self._worker
        self._mind_stuck_slots()
        self._mind_waiting_slots()
        looked_ago = timedelta(seconds=worker.app.clock.monotonic() - worker.claimer.looked_at)
        report = heartbeat(worker.owner, running=worker.executor.running, looked_ago=looked_ago)
        if not await self._store.run(report, patience_seconds=1):
            await self._store.run(
                say_hello(
                    worker.owner,
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    queues=worker.queues,
                    tasks=[task.name for task in worker.app.registry],
                    slots=worker.concurrency,
                ),
                patience_seconds=1,
            )

    def _mind_stuck_slots(self) -> None:
        """Tell of handlers that went on after their timeout; once they fill all slots, end this process."""
        worker = self._worker
        stuck, slots = worker.executor.threads.stuck, worker.concurrency
        if stuck:
            log.warning("%d of %d slots are stuck in handlers that went on after they were told to stop", stuck, slots)
        if stuck >= slots and not worker.must_restart:
            log.error("no slot is left: this worker stops, to be started anew")
            worker.must_restart = True
            worker.stop()

    def _mind_waiting_slots(self) -> None:
        """Report, from the second look on, that every slot is held by a handler that waits for other work."""
        running = [attempt.running for attempt in self._worker.attempts.all() if not attempt.has_outcome]
        waiting = [one for one in running if one is not None and one.identity.waits_for]
        all_waited, self._all_waited = self._all_waited, len(waiting) >= self._worker.concurrency
        if all_waited and self._all_waited:
            log.error(
                "all %d slots are held by handlers that wait, the first for %s: no other job can start here. If they "
                "wait for jobs of these queues, start another worker, and use job.submit with job.then, or a pipeline",
                len(waiting), "".join((waiting[0].identity.waits_for or [])[:1]),
            )  # fmt: skip
