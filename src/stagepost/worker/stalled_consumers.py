"""Reconnects a consumer that stopped receiving redeliveries."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.store.queue_observations import resent_queues
from stagepost.transport.rabbitmq.consumer import Consumer, Position

__all__ = ["StalledConsumerCheck"]

LOOK_SECONDS = 5.0


class StalledConsumerCheck:
    """Reconnects a consumer when jobs were published again and none of those messages arrived.

    When a RabbitMQ quorum queue is deleted and recreated within milliseconds, the new queue keeps its old consumers and
    assigns messages to them, but the messages never arrive. Neither side notices. The database shows it, because the
    jobs do not start. If the cause was something else, reconnecting does little harm.
    """

    def __init__(
        self, store: AsyncStore, clock: Clock, queues: Mapping[str, str], consumer: Callable[[], Consumer]
    ) -> None:
        """`queues` are those whose jobs may be sent again, with the name at the broker of what brings them here."""
        self._store = store
        self._clock = clock
        self._queues = queues
        self._consumer = consumer
        self._looked_at = float("-inf")
        self._known: dict[str, int] | None = None
        self._doubted: dict[str, Position | None] = {}

    async def look(self) -> None:
        """Note what was sent again since the last look, and whether anything came of what was sent before."""
        if self._clock.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        resent = await self._store.run(resent_queues(), patience_seconds=0)
        self._looked_at = self._clock.monotonic()
        consumer = self._consumer()
        doubted, self._doubted = self._doubted, {}
        for queue, position in doubted.items():
            if position is not None and consumer.position(self._queues[queue]) == position:
                consumer.connect_again(f"nothing came though jobs of queue {queue} were sent again")
        if self._known is not None:
            for queue in self._queues.keys() & resent.keys():
                if resent[queue] != self._known.get(queue):
                    self._doubted[queue] = consumer.position(self._queues[queue])
        self._known = resent
