"""What an enqueue says to workers that are waiting; every job is found without it, only later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stagepost.model.job import NewJob
from stagepost.model.lifecycle import JobState
from stagepost.model.series import JobSeries
from stagepost.store.doorbell import Doorbell

__all__ = ["Hints"]


class Hints:
    """Rings for this process's workers; `to_others` has the database tell those of other processes, if it can."""

    def __init__(self, bell: Doorbell, *, to_others: bool = False) -> None:
        self.to_others = to_others
        self._bell = bell

    def ring_for_stop(self, state: JobState, tx: Any) -> None:
        """Tell workers of this process that a job was asked to stop, if it is running."""
        if state is JobState.RUNNING:
            self._bell.ring_for_stop(tx=tx)

    def ring(self, jobs: Iterable[NewJob] | JobSeries, tx: Any) -> None:
        """Tell of jobs that are committed, or written through `tx` if the app lent it, and can be claimed at once."""
        if tx is None and not self._bell.is_answered:
            return
        kinds = [jobs.pattern] if isinstance(jobs, JobSeries) else jobs
        claimable = {
            job.queue_name for job in kinds if job.available_at is None and not job.delay_us and job.limit_key is None
        }
        self._bell.ring(claimable, tx=tx)
