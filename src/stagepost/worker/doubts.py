"""Doubts whether a broker still brings messages, where jobs had to be sent again and nothing came since."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.store.channels import resent_queues
from stagepost.transport.rabbitmq.consumer import Consumer, Position

__all__ = ["Doubts"]

LOOK_SECONDS = 5.0


class Doubts:
    """Lets a consumer connect again that got nothing of what was sent again.

    A quorum queue of RabbitMQ that is deleted and made anew within milliseconds counts its old consumers as its own
    and gives them messages, which they never get. Neither they nor the queue can tell; the database can, because their
    jobs do not start. Connecting again costs little if something else was the reason.
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
