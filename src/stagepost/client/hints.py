"""What an enqueue says to workers that are waiting; every job is found without it, only later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stagepost.client.limiter import RateLimiter
from stagepost.model.job import NewJob
from stagepost.model.rate import RateLimit
from stagepost.store.doorbell import Doorbell

__all__ = ["Hints", "claimable_queues"]

TOLD = RateLimit("stagepost-hints", rate=20, burst=50)
"""PostgreSQL commits the transactions that notify one after the other, each waiting for the disk: eight processes
that notified with every job enqueued half as many. Between two hints a busy stream of jobs waits 50 ms at most, its
last ones until a worker that was told looks again, after `poll_shortest`."""


class Hints:
    """Rings for this process's workers, and decides when the database is to tell those of others."""

    def __init__(self, bell: Doorbell, *, to_others: bool = False) -> None:
        self._bell = bell
        self._to_others = to_others
        self._told = RateLimiter(TOLD)

    def should_tell(self, jobs: Iterable[NewJob]) -> bool:
        """Say whether the transaction that enqueues these jobs tells others of them when it commits."""
        return self._to_others and bool(claimable_queues(jobs)) and not self._told.try_acquire()

    def ring(self, jobs: Iterable[NewJob], tx: Any) -> None:
        """Tell this process's workers of jobs that are committed, or written through `tx` if the app lent it."""
        self._bell.ring(claimable_queues(jobs), tx=tx)


def claimable_queues(jobs: Iterable[NewJob]) -> set[str]:
    """Name the queues of those jobs that can be claimed as soon as they are committed."""
    return {job.queue_name for job in jobs if job.available_at is None and not job.delay_us and job.limit_key is None}
