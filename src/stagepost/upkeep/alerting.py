"""Raises alerts: enqueues the app's alert job in the transaction of the event that it reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from stagepost.database.async_store import AsyncStore
from stagepost.database.process_counts import ProcessCounts
from stagepost.database.statement import Operation
from stagepost.loops.signals import Signals
from stagepost.model.alert import Alert
from stagepost.model.job import NewJob
from stagepost.store.alerts import alerting
from stagepost.store.jobs import enqueue

__all__ = ["AlertingRunner"]

T = TypeVar("T")


class AlertingRunner:
    """Runs operations that may raise an alert. Without a task for alerts, they only appear in the log."""

    def __init__(
        self,
        store: AsyncStore,
        signals: Signals,
        *,
        job_for: Callable[[Alert], NewJob] | None = None,
    ) -> None:
        """`job_for` makes the job that reports an alert."""
        self._store = store
        self._job_for = job_for
        self._signals = signals

    @property
    def counts(self) -> ProcessCounts:
        """The counts of this process."""
        return self._store.store.counts

    async def run(self, work: Operation[T], about: Callable[[T], Alert | None]) -> T:
        """Run an operation and, in its transaction, raise the alert that `about` returns for its result, if any."""
        if self._job_for is None:
            return await self._store.run(work)
        result, alert = await self._store.run(alerting(work, about, self._job_for))
        if alert is not None:
            self._signals.jobs_ready.send()
        return result

    async def raise_alert(self, alert: Alert) -> None:
        """Raise an alert about an event that is already stored."""
        if self._job_for is not None:
            await self._store.run(enqueue(self._job_for(alert)))
            self._signals.jobs_ready.send()
