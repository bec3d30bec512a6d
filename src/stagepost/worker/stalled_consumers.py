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
    assigns messages to them, but the messages never arrive. The broker then reports an empty queue with consumers, so
    the consumer's own checks (`ConsumedQueue.is_dropped`) find nothing wrong. The database shows it, because the jobs
    do not start and are published again. If the cause was something else, reconnecting does little harm.
    """

    def __init__(
        self, store: AsyncStore, clock: Clock, queues: Mapping[str, str], consumer: Callable[[], Consumer]
    ) -> None:
        """`queues` maps queues whose jobs may be published again to the broker's queue that this process consumes."""
        self._store = store
        self._clock = clock
        self._queues = queues
        self._consumer = consumer
        self._looked_at = float("-inf")
        self._known: dict[str, int] | None = None
        self._suspected: dict[str, Position | None] = {}

    async def look(self) -> None:
        """Reconnect if no message arrived after jobs were published again; checks at most every few seconds."""
        if self._clock.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        resent = await self._store.run(resent_queues(), patience_seconds=0)
        self._looked_at = self._clock.monotonic()
        consumer = self._consumer()
        suspected, self._suspected = self._suspected, {}
        for queue, position in suspected.items():
            if position is not None and consumer.position(self._queues[queue]) == position:
                consumer.reconnect(f"no message arrived although jobs of queue {queue} were sent again")
        if self._known is not None:
            for queue in self._queues.keys() & resent.keys():
                if resent[queue] != self._known.get(queue):
                    self._suspected[queue] = consumer.position(self._queues[queue])
        self._known = resent
