"""Wakes idle workers after an enqueue; without it they find the job at their next poll."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stagepost.database.local_notifier import LocalNotifier
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import JobState
from stagepost.model.series import JobSeries

__all__ = ["WorkerWaker"]


class WorkerWaker:
    """Wakes this process's workers; `to_others` also notifies other processes if the database supports it."""

    def __init__(self, notifier: LocalNotifier, *, to_others: bool = False) -> None:
        self.to_others = to_others
        self._notifier = notifier

    def notify_stop(self, state: JobState, tx: Any) -> None:
        """Tell workers of this process that a job was asked to stop, if it is running."""
        if state is JobState.RUNNING:
            self._notifier.notify_stop(tx=tx)

    def wake(self, jobs: Iterable[NewJob] | JobSeries, tx: Any) -> None:
        """Wake workers for jobs that are due now, at once or, with a transaction of the app, after its commit."""
        if tx is None and not self._notifier.has_subscribers:
            return
        kinds = [jobs.pattern] if isinstance(jobs, JobSeries) else jobs
        claimable = {
            job.queue_name for job in kinds if job.available_at is None and not job.delay_us and job.limit is None
        }
        self._notifier.notify(claimable, tx=tx)
