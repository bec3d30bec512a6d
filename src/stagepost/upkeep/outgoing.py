"""Publishes messages other than requests: the outbox, and notices of jobs that failed permanently."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

from stagepost.clock import Clock
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.model.alert import Alert, AlertKind
from stagepost.model.dead_letter import DeadMessage
from stagepost.model.envelope import Message
from stagepost.model.groups import ReadSize, groups_of
from stagepost.model.job import microseconds
from stagepost.model.lifecycle import JobState
from stagepost.store.dead_messages import add_dead_messages
from stagepost.store.history import DEAD
from stagepost.store.outbox import OutboxMessage, delete_messages, mark_announced, next_messages, unannounced
from stagepost.store.queue_observations import begin_carrying
from stagepost.transport.rabbitmq.publisher import Publisher, Verdict
from stagepost.upkeep.alerting import AlertingRunner

__all__ = ["Outgoing"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 200
MOST_BYTES = 8 * 1024 * 1024
"""Most bytes of messages that are read at once; half as many are published together."""
FIRST = 20
"""How many messages are read while their sizes are unknown."""
OUTBOX_SECONDS = 0.2
"""The least time between reads of the outbox: every enqueue wakes the relay, and the outbox is seldom used."""
NOTICE_SECONDS = 1.0
"""The least time between searches for failed jobs."""
LOOK_BACK = timedelta(seconds=10)
"""How far back to search: jobs may be committed in a different order than they ended."""
LONG_LOOK_BACK = timedelta(minutes=10)
LONG_LOOK_SECONDS = 60.0


class Outgoing:
    """Publishes in order and deletes what the broker confirmed. After a crash, a message may be published twice.

    The relay calls it, because they share a publisher that sends one batch at a time.
    """

    def __init__(
        self,
        store: AsyncStore,
        publisher: Publisher,
        *,
        settings: RabbitmqSettings,
        queues: Sequence[str],
        clock: Clock,
        alerts: AlertingRunner,
    ) -> None:
        self._store = store
        self._alerts = alerts
        self._publisher = publisher
        self._settings = settings
        self._queues = queues  # shared with the relay, which adds to it
        self._clock = clock
        self._carried_since: dict[str, int] = {}
        self._told_until: dict[tuple[str, JobState], int] = {}
        self._opened_at = self._noticed_at = self._looked_long_at = float("-inf")
        self._outbox, self._notices = (
            ReadSize(most=MOST_AT_ONCE, most_bytes=MOST_BYTES, first=FIRST) for _ in range(2)
        )
        self.has_more = False
        """Whether more messages are ready to be sent."""

    async def send(self) -> int:
        """Publish what is ready; returns how many messages the broker confirmed."""
        self.has_more = False
        return await self._send_outbox() + await self._send_notices()

    async def _send_outbox(self) -> int:
        confirmed, after, now = 0, 0, self._clock.monotonic()
        if now - self._opened_at < OUTBOX_SECONDS:
            return 0
        self._opened_at = now
        while page := await self._store.run(next_messages(after=after, most=self._outbox.next())):
            self._outbox.note([len(waiting.message.body) for waiting in page])
            after = page[-1].id
            # A returned message is identified by its id. Of two with the same id, the second waits for the next pass.
            batch = list({waiting.message.message_id: waiting for waiting in reversed(page)}.values())[::-1]
            verdicts = await self._publish([waiting.message for waiting in batch])
            outcomes = dict(zip((waiting.id for waiting in batch), verdicts, strict=True))
            there = [number for number, verdict in outcomes.items() if verdict is Verdict.CONFIRMED]
            if there:
                await self._store.run(delete_messages(there))
            await self._keep_unroutable([one for one in batch if outcomes[one.id] is Verdict.RETURNED])
            confirmed += len(there)
            if Verdict.UNKNOWN in verdicts:
                break  # later messages would overtake these
        return confirmed

    async def _publish(self, messages: Sequence[Message]) -> list[Verdict]:
        """Publish messages in groups of bounded size; none after one that may not have arrived."""
        verdicts: list[Verdict] = []
        for group in groups_of(messages, size=_size, most=MOST_AT_ONCE, most_bytes=MOST_BYTES // 2):
            answer = await asyncio.wrap_future(self._publisher.publish(group))
            verdicts += answer
            if Verdict.UNKNOWN in verdicts:
                break
        return verdicts + [Verdict.UNKNOWN] * (len(messages) - len(verdicts))

    async def _keep_unroutable(self, returned: list[OutboxMessage]) -> None:
        """Store unroutable messages as dead letters, so that they do not block the messages behind them forever."""
        if not returned:
            return
        dead = [_unroutable(waiting, self._settings.exchange_name) for waiting in returned]
        why = "; ".join(sorted({message.error for message in dead}))
        log.error("%d messages of the outbox could not be routed: %s. They are among the dead letters.", len(dead), why)
        alert = Alert.of_messages(AlertKind.UNROUTABLE, len(dead), why)
        await self._alerts.run(add_dead_messages(dead), lambda _: alert)
        await self._store.run(delete_messages([waiting.id for waiting in returned]))

    async def _send_notices(self) -> int:
        now = self._clock.monotonic()
        if now - self._noticed_at < NOTICE_SECONDS:
            return 0
        self._noticed_at = now
        look_back = LOOK_BACK
        if now - self._looked_long_at >= LONG_LOOK_SECONDS:
            look_back, self._looked_long_at = LONG_LOOK_BACK, now
        return sum([await self._announce(queue, state, look_back) for queue in self._queues for state in DEAD])

    async def _announce(self, queue: str, state: JobState, look_back: timedelta) -> int:
        most = self._notices.next()
        found = await self._store.run(
            unannounced(
                queue,
                state,
                since=await self._since(queue, state, look_back),
                routing_key=self._settings.dead_letters,
                asked_by=self._settings.routing_key(queue),
                most=most,
            )
        )
        if found.notices:
            self._notices.note([len(notice.body) for notice in found.notices])
            verdicts = await self._publish(found.notices)
            there = [
                fence for fence, verdict in zip(found.fences, verdicts, strict=True) if verdict is Verdict.CONFIRMED
            ]
            if there:
                await self._store.run(mark_announced(there))
            if len(there) < len(found.fences):
                return len(there)
        if len(found.notices) < most:
            self._told_until[queue, state] = found.now
        else:
            self._told_until[queue, state] = found.finished_at[-1]
            self.has_more, self._noticed_at = True, float("-inf")
        return len(found.notices)

    async def _since(self, queue: str, state: JobState, look_back: timedelta) -> int:
        """Return the start of the search; jobs that failed before a broker carried their queue are not announced."""
        if queue not in self._carried_since:
            self._carried_since[queue] = await self._store.run(begin_carrying(queue))
        return max(self._carried_since[queue], self._told_until.get((queue, state), 0) - microseconds(look_back))


def _size(message: Message) -> int:
    return len(message.body)


def _unroutable(waiting: OutboxMessage, exchange: str) -> DeadMessage:
    key = waiting.message.routing_key
    return DeadMessage.of(waiting.message, f"no queue is bound to exchange {exchange} for routing key {key}")
