"""Renews a worker's leases in its own thread and connection, so that no handler can delay it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import accumulate

from stagepost.clock import Clock, monotonic
from stagepost.config.logging import job_fields
from stagepost.database.store import Store
from stagepost.loops.failure_log import FailureLog
from stagepost.store.leases import Renewed, asked_to_stop, renew
from stagepost.store.settlement import Fence
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts

__all__ = ["LeaseKeeper", "newest"]

log = logging.getLogger(__name__)

NAME = "lease_keeper"
REPORT_SECONDS = 1.0
"""Interval between checks for progress to write and for cancelled jobs, much shorter than that of renewals."""
MOST_BYTES = 1_000_000
"""Most bytes of progress in one statement, so that large reports do not delay renewals."""


class LeaseKeeper(threading.Thread):
    """Renews every lease three times per lease, and stops attempts that lost theirs or are about to.

    Progress is written together with an early renewal of its attempt's lease.
    """

    def __init__(
        self,
        store: Store,
        attempts: LeasedAttempts,
        *,
        owner: str,
        lease: timedelta,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        beat: Callable[[], None] = lambda: None,
        failure_log: FailureLog | None = None,
    ) -> None:
        super().__init__(name="stagepost-leases", daemon=True)
        self._store = store
        self._attempts = attempts
        self._owner = owner
        self._lease = lease
        self._clock = clock
        self._loop = loop
        self._beat = beat
        self._failure_log = failure_log or FailureLog(clock)
        self._interval = lease.total_seconds() / 3
        self._margin = lease.total_seconds() / 6
        self._wake_event = threading.Event()
        self._stop_event = threading.Event()

    def run(self) -> None:
        """Repeat passes until stopped; a failed pass is retried soon."""
        due = monotonic() + self._interval
        while True:
            self._wake_event.wait(max(0.0, min(due - monotonic(), REPORT_SECONDS)))
            self._wake_event.clear()
            if self._stop_event.is_set():
                return
            try:
                if monotonic() < due:
                    self.check_once()
                else:
                    self.run_once()
                    self._beat()
                    due = monotonic() + self._interval
                self._failure_log.worked(NAME)
            except Exception as error:  # noqa: BLE001 - leases must be renewed after any error
                if self._stop_event.is_set():
                    return
                due = monotonic() + min(1.0, self._interval / 4)
                self._failure_log.failed(NAME, error)
            self._fence_expiring()

    async def watch(self) -> None:
        """Stop attempts whose lease is about to end. This runs in the event loop: the thread may hang in a renewal."""
        while True:
            await asyncio.sleep(self._margin / 2)
            self._fence_expiring()

    def run_once(self) -> Renewed | None:
        """Renew all leases in one statement, and stop attempts that lost theirs or were cancelled."""
        attempts = self._attempts.all()
        return self._renew(attempts, newest(attempts), patience=max(0.5, self._interval)) if attempts else None

    def check_once(self) -> None:
        """Write progress and stop attempts of cancelled jobs, without waiting for the next renewal."""
        renewed = self.report_once()
        self.stop_cancelled_once(besides=renewed.held if renewed else frozenset())

    def stop_cancelled_once(self, *, besides: frozenset[Fence] = frozenset()) -> set[Fence]:
        """Stop attempts of cancelled jobs and return them. This is one small read, and none while no handler runs."""
        attempts = {attempt.fence: attempt for attempt in self._attempts.all() if attempt.can_be_stopped}
        if not (fences := attempts.keys() - besides):
            return set()
        found = self._store.run(asked_to_stop(list(fences), owner=self._owner), patience_seconds=0)
        for fence in found:
            self._ask_to_stop(attempts[fence])
        return found

    def wake(self) -> None:
        """Check now, because a job was cancelled in this process. Any thread may call this."""
        self._wake_event.set()

    def report_once(self) -> Renewed | None:
        """Renew the leases of attempts whose handlers have reported progress that is not written yet."""
        reports = newest(self._attempts.all())
        return self._renew(list(reports), reports, patience=0) if reports else None

    def _renew(self, attempts: list[LeasedAttempt], reports: dict[LeasedAttempt, str], *, patience: float) -> Renewed:
        asked_at = self._clock.monotonic()
        renewed = self._store.run(
            renew(
                [attempt.fence for attempt in attempts],
                owner=self._owner,
                lease=self._lease,
                reports={attempt.fence: progress for attempt, progress in reports.items()},
            ),
            patience_seconds=patience,
        )
        for attempt, progress in reports.items():
            if attempt.fence not in renewed.passed_over:
                attempt.written = progress
        for attempt in attempts:
            if attempt.fence not in renewed.held:
                # A job that has ended, or is about to, has no lease to lose.
                if not attempt.may_be_settled and not attempt.has_outcome:
                    self._lose(attempt, "its lease was taken over")
                continue
            attempt.lease_ends = asked_at + self._lease.total_seconds()
            if attempt.fence in renewed.asked_to_stop:
                self._ask_to_stop(attempt)
        return renewed

    def _ask_to_stop(self, attempt: LeasedAttempt) -> None:
        self._loop.call_soon_threadsafe(attempt.stop, "cancelled on request")

    def stop(self) -> None:
        """End the thread after the current pass, and wait for it."""
        self._stop_event.set()
        self._wake_event.set()
        if self.is_alive():
            self.join(timeout=self._store.call_seconds + 1)

    def abort(self) -> None:
        """Abort a pass that has not ended, and close the connection unless the app shares it."""
        if not self._store.database.is_memory:
            self._store.abort()
            self._store.close()

    def _fence_expiring(self) -> None:
        """Stop attempts whose lease was not renewed in time: another worker may lease their jobs at any moment."""
        now = self._clock.monotonic()
        for attempt in self._attempts.all():
            if now > attempt.lease_ends - self._margin:
                self._lose(attempt, "its lease could not be renewed in time")

    def _lose(self, attempt: LeasedAttempt, reason: str) -> None:
        # An attempt that was settled since the list was taken has no lease to lose.
        if attempt in self._attempts and not attempt.is_lost:
            self._loop.call_soon_threadsafe(self._lose_on_loop, attempt, reason)

    def _lose_on_loop(self, attempt: LeasedAttempt, reason: str) -> None:
        if attempt not in self._attempts or attempt.is_lost:
            return
        attempt.is_lost = True
        log.warning(
            "job %s: stopping attempt %d: %s",
            attempt.job.id, attempt.job.attempt, reason, extra=job_fields(attempt.job),
        )  # fmt: skip
        attempt.stop(reason)


def newest(attempts: Iterable[LeasedAttempt]) -> dict[LeasedAttempt, str]:
    """Collect unwritten progress, as much as fits into a statement; the rest comes first the next time."""
    unwritten = [(attempt, progress) for attempt in attempts if (progress := attempt.unwritten) is not None]
    unwritten.sort(key=lambda report: report[0].lease_ends)  # reports that were written last have the newest leases
    sizes = accumulate(len(progress) for _, progress in unwritten)
    return {attempt: progress for (attempt, progress), size in zip(unwritten, sizes, strict=True) if size <= MOST_BYTES}
