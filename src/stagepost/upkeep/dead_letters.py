"""Moves messages from the broker's dead-letter queue into the database."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.errors import StoreUnavailable, ValueTooLarge
from stagepost.loops.signals import Signals
from stagepost.model.alert import Alert, AlertKind
from stagepost.model.dead_letter import DeadMessage, Letter, Notice, Undelivered, sort_letter, stray
from stagepost.model.groups import halves
from stagepost.store.dead_messages import KnownJobs, add_dead_messages, end_undelivered, known_jobs
from stagepost.transport.rabbitmq.consumed_queue import Delivery
from stagepost.upkeep.alerting import AlertingRunner
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.message_ingester import MessageIngester

__all__ = ["DeadLetterCollector"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 100
INTERVAL_SECONDS = 1.0
MOST_REASONS = 5
"""How many reasons an alert about stray messages lists."""
NOTHING_KNOWN = KnownJobs(frozenset(), frozenset())


class DeadLetterCollector(MessageIngester):
    """Takes dead letters while this worker leads. It acknowledges a message after storing it, so a crash loses none.

    A notice of a job that has ended adds nothing to the job's row. A request that the broker dead-lettered ends its
    job, if the job still waits for it. Everything else is stored as a dead message.
    """

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        signals: Signals,
        *,
        url: str,
        settings: RabbitmqSettings,
        prepare: Callable[[], None],
        alerts: AlertingRunner,
    ) -> None:
        super().__init__(
            url,
            {settings.dead_letters: MOST_AT_ONCE},
            name="stagepost-dead-letters",
            prepare=prepare,
            most_at_once=MOST_AT_ONCE,
            interval=INTERVAL_SECONDS,
        )
        self.collected: Counter[str] = Counter()
        """Number of dead letters of each kind."""
        self._store = store
        self._alerts = alerts
        self._leader = leader
        self._settings = settings
        self._signals = signals

    async def run(self) -> None:
        """Collect until stopped, then close the connection to the broker."""
        try:
            await super().run()
        finally:
            await self.close()

    @property
    def _may_take(self) -> bool:
        return self._leader.is_leading

    async def _take_in(self, deliveries: list[Delivery]) -> int:
        """Store messages. One that cannot be stored stays at the broker and does not delay others."""
        done = await self._store_all(deliveries)
        self._forget(deliveries)
        self._done(done)
        return len(done)

    async def _store_all(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        try:
            await self._store_together(deliveries)
        except StoreUnavailable:
            raise
        except Exception:
            if len(deliveries) == 1:
                log.exception("%s: a message could not be stored; it stays at the broker", self._settings.dead_letters)
                return []
            return [done for half in halves(deliveries) for done in await self._store_all(half)]
        return deliveries

    async def _store_together(self, deliveries: Sequence[Delivery]) -> None:
        letters = [_letter(delivery) for delivery in deliveries]
        about = [(letter, sort_letter(letter)) for letter in letters]
        ended = await self._end_undelivered([kind for _, kind in about if isinstance(kind, Undelivered)])
        ids = [kind.job_id for _, kind in about if kind is not None]
        known = await self._store.run(known_jobs(ids)) if ids else NOTHING_KNOWN
        strays = [letter for letter, kind in about if not _has_row(kind, known)]
        if strays:
            await self._store_strays(list({(dead := stray(letter)).id: dead for letter in strays}.values()))
        failed = [kind.job_id for _, kind in about if isinstance(kind, Notice) and _has_row(kind, known)]
        self._log({"notices": len(failed), "ended": ended, "strays": len(strays)})
        alert = Alert.of_jobs(AlertKind.FAILED, failed, "they failed permanently", queue=self._settings.dead_letters)
        if alert is not None:
            await self._alerts.raise_alert(alert)

    async def _end_undelivered(self, requests: list[Undelivered]) -> int:
        final = [request for request in requests if request.ends_job]
        if not final:
            return 0
        ended = await self._alerts.run(end_undelivered(final), lambda ended: self._about(final, ended.ended))
        self._signals.batches_touched.send(ended.batches)
        return len(ended.ended)

    def _about(self, requests: list[Undelivered], ended: list[str]) -> Alert | None:
        why = "; ".join(sorted({request.error for request in requests if request.job_id in ended}))
        return Alert.of_jobs(AlertKind.UNDELIVERED, ended, why, queue=self._settings.dead_letters)

    async def _store_strays(self, messages: list[DeadMessage]) -> None:
        why = "; ".join(sorted({message.reason for message in messages})[:MOST_REASONS])
        alert = Alert.of_messages(AlertKind.STRAY, len(messages), why, queue=self._settings.dead_letters)
        try:
            await self._alerts.run(add_dead_messages(messages), lambda _: alert)
        except ValueTooLarge as error:
            if len(messages) > 1:
                raise
            await self._alerts.run(add_dead_messages([messages[0].shortened(str(error))]), lambda _: alert)

    def _log(self, numbers: dict[str, int]) -> None:
        """Count the letters, and log each kind once."""
        self.collected.update(numbers)
        queue = self._settings.dead_letters
        if numbers["notices"]:
            log.error("%s: %d jobs failed permanently; stagepost dead list shows them", queue, numbers["notices"])
        if numbers["ended"]:
            log.error(
                "%s: %d jobs became dead letters: the broker dead-lettered their messages", queue, numbers["ended"]
            )
        if numbers["strays"]:
            log.error("%s: %d messages belong to no job; stagepost dead list shows them", queue, numbers["strays"])


def _has_row(about: Notice | Undelivered | None, known: KnownJobs) -> bool:
    """Whether a job's row contains everything that a letter says."""
    match about:
        case Notice(job_id, is_ours):
            return job_id in known.ended or (is_ours and job_id in known.live)  # it was retried since
        case Undelivered(job_id):
            return job_id in known.ended or job_id in known.live
        case None:
            return False


def _letter(delivery: Delivery) -> Letter:
    return Letter(
        body=delivery.body,
        headers=delivery.headers,
        message_id=delivery.message_id,
        correlation_id=delivery.correlation_id,
    )
