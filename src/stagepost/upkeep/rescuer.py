"""Rescues the jobs of workers that died."""

from __future__ import annotations

import logging
from datetime import timedelta

from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.model.alert import Alert, AlertKind
from stagepost.store.leases import Rescued, rescue_expired
from stagepost.upkeep.alerting import AlertingRunner

__all__ = ["Rescuer"]

log = logging.getLogger(__name__)

MARGIN = timedelta(seconds=1)
"""How long after its end a lease is left alone. Its owner stops the attempt before the end."""
MOST_AT_ONCE = 500


class Rescuer(Service):
    """Queues jobs whose lease expired; those that crashed their worker too often become dead letters.

    Every worker has one, so that a rescue does not depend on a leader.
    """

    def __init__(
        self,
        alerts: AlertingRunner,
        signals: Signals,
        *,
        interval: float = 5.0,
        margin: timedelta = MARGIN,
    ) -> None:
        super().__init__(interval=interval)
        self._alerts = alerts
        self._margin = margin
        self._signals = signals
        self.rescued = 0
        """Number of jobs that this worker has rescued."""

    async def run_once(self) -> Rescued:
        """Rescue jobs whose lease has expired."""
        rescued = await self._alerts.run(rescue_expired(grace=self._margin, most=MOST_AT_ONCE), _about)
        self.rescued += rescued.number
        if rescued.queued:
            log.warning("%d jobs of dead workers are queued again", len(rescued.queued))
            self._signals.jobs_ready.send()
        if rescued.buried or rescued.cancelled:
            self._signals.batches_touched.send(rescued.batches)
        self._signals.limits_freed.send(rescued.limit_keys)
        for job_id, task in zip(rescued.buried, rescued.buried_tasks, strict=True):
            self._alerts.counts.note_dead_letter(task)
            log.error("job %s crashed its worker too often and became a dead letter", job_id, extra={"job_id": job_id})
        if rescued.number >= MOST_AT_ONCE:
            self.wake()
        return rescued


def _about(rescued: Rescued) -> Alert | None:
    return Alert.of_jobs(AlertKind.CRASHED, rescued.buried, "they crashed their workers too often")
