"""Whether a worker is alive and ready, for systemd, Kubernetes and load balancers. Any thread may ask."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from stagepost.clock import monotonic
from stagepost.database.store import Store
from stagepost.database.threads import call_in_thread
from stagepost.store.health import ping
from stagepost.store.workers import ALIVE_WITHIN
from stagepost.worker.worker import Worker

__all__ = ["Probes", "Verdict"]

ANSWERED_SECONDS = 2.0
"""The database counts as answering if it answered the worker this recently; otherwise it is asked."""
PING_SECONDS = 2.0
"""How long to wait for the database."""


class Verdict(NamedTuple):
    """The result of a probe, and a sentence that says why."""

    is_good: bool
    text: str


class Probes:
    """Looks at one worker from outside its event loop."""

    def __init__(self, worker: Worker, store: Store) -> None:
        """`store` has connections that the worker does not use."""
        self._worker = worker
        self._store = store
        self._lock = threading.Lock()
        self._ping: Future[int] | None = None

    def live(self) -> Verdict:
        """Whether the worker looks for jobs, or cannot because all its slots are busy.

        It looks even while the database is away, because a restart would not bring the database back.
        """
        worker, slots = self._worker, self._worker.concurrency
        if worker.is_stopping:
            return Verdict(True, "The worker is stopping.")
        if not worker.is_running:
            return Verdict(True, "The worker is starting.")
        busy, idle_seconds = worker.busy, worker.seconds_since_look
        if idle_seconds <= ALIVE_WITHIN.total_seconds() + worker.app.settings.poll_longest_seconds:
            return Verdict(True, f"The worker looked for jobs {idle_seconds:.1f} s ago.")
        if busy >= slots:
            return Verdict(True, f"All {slots} slots are busy.")
        return Verdict(
            False,
            f"The worker has not looked for jobs for {idle_seconds:.0f} s, although {slots - busy} of {slots} slots "
            f"are free. An `async def` handler that calls a blocking function may hold up its event loop.",
        )

    def ready(self) -> Verdict:
        """Whether the worker takes jobs: it has checked the tables, is not stopping, and the database answers."""
        if self._worker.is_stopping:
            return Verdict(False, "The worker is stopping.")
        if not self._worker.is_running:
            return Verdict(False, "The worker is starting.")
        if not self._database_answers():
            return Verdict(False, "The database does not answer. The worker continues by itself when it does.")
        return Verdict(True, "The worker runs jobs, and the database answers.")

    def _database_answers(self) -> bool:
        if monotonic() - self._worker.parts.store.answered_at <= ANSWERED_SECONDS:
            return True
        with self._lock:  # one question at a time, however many probes wait for its answer
            if self._ping is None or self._ping.done():
                self._ping = call_in_thread(partial(self._store.run, ping(), patience_seconds=0), name="stagepost-ping")
            asked = self._ping
        try:
            asked.result(PING_SECONDS)
        except Exception:  # noqa: BLE001 - whatever the reason is, there was no answer
            return False
        return True
