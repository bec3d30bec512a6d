"""Moves unreadable messages to the dead letters."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.errors import ValueTooLarge
from stagepost.loops.signals import Signals
from stagepost.model.dead_letter import Unreadable
from stagepost.model.groups import halves
from stagepost.store.outbox import add_unreadable
from stagepost.transport.rabbitmq.consumed_queue import Delivery

__all__ = ["UnreadableMessages"]

log = logging.getLogger(__name__)


class UnreadableMessages:
    """Sends unreadable messages to the dead-letter queue through the outbox."""

    def __init__(self, store: AsyncStore, signals: Signals, *, settings: RabbitmqSettings) -> None:
        self.added = 0
        self._store = store
        self._settings = settings
        self._signals = signals

    async def add(self, bad: Sequence[tuple[Delivery, str]]) -> None:
        """Store deliveries with the reason why each cannot be read; after that they can be acknowledged."""
        if not bad:
            return
        await self._add_all([_unreadable(delivery, error) for delivery, error in bad])
        self.added += len(bad)
        delivery, error = bad[0]
        log.error("queue %s: %d messages cannot be read, the first: %s", delivery.queue, len(bad), error)
        self._signals.messages_ready.send()

    async def _add_all(self, bad: Sequence[Unreadable]) -> None:
        try:
            await self._store.run(add_unreadable(bad, routing_key=self._settings.dead_letters))
        except ValueTooLarge as error:
            if len(bad) == 1:
                short = bad[0].shortened(str(error))
                await self._store.run(add_unreadable([short], routing_key=self._settings.dead_letters))
                return
            for half in halves(bad):
                await self._add_all(half)

    async def add_one(self, delivery: Delivery, error: str) -> None:
        """Store one delivery with the reason why it cannot be read."""
        await self.add([(delivery, error)])


def _unreadable(delivery: Delivery, error: str) -> Unreadable:
    return Unreadable(
        queue=delivery.queue,
        routing_key=delivery.routing_key,
        body=delivery.body,
        error=error,
        message_id=delivery.message_id,
        correlation_id=delivery.correlation_id,
    )
