"""Says hello in the workers' table, for people to look at."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from stagepost.store.async_store import AsyncStore
from stagepost.store.workers import heartbeat, say_hello
from stagepost.upkeep.service import Service

if TYPE_CHECKING:
    from stagepost.worker.worker import Worker

__all__ = ["Reporter"]


class Reporter(Service):
    """Writes what this worker is doing every few seconds; no decision rests on it."""

    def __init__(self, store: AsyncStore, worker: Worker, *, interval: float = 5.0) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._worker = worker

    async def run_once(self) -> None:
        """Write one report; a worker that was forgotten, or is new, says hello first."""
        worker = self._worker
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
