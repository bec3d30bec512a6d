"""Publishes what is to be sent: the jobs of queues that a broker carries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from stagepost.clock import Clock
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.model.envelope import Message, request_for
from stagepost.store.async_store import AsyncStore
from stagepost.store.sending import Unsent, mark_sent, unsent
from stagepost.transport.rabbitmq.publisher import Publisher, Verdict
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.service import Service

__all__ = ["Relay"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 2000
GROUP = 500
"""So many are published together; they are marked while the next group is on its way."""


class Relay(Service):
    """Publishes queued jobs in their order and marks those that the broker confirmed.

    Dying in between, or two of them at work, costs messages that nobody needs, never a job.
    """

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        publisher: Publisher,
        *,
        settings: RabbitmqSettings,
        queues: Sequence[str],
        clock: Clock,
        interval: float = 1.0,
        on_returned: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(interval=interval)
        self.sent = 0
        self._store = store
        self._leader = leader
        self._publisher = publisher
        self._settings = settings
        self._queues = list(queues)
        self._clock = clock
        self._on_returned = on_returned
        self._returned_since: dict[str, float] = {}

    async def run(self) -> None:
        """Keep a connection while it runs."""
        self._publisher.start()
        try:
            await super().run()
        finally:
            await asyncio.get_running_loop().run_in_executor(None, self._publisher.stop)

    async def run_once(self) -> int:
        """Publish what is to be sent now; returns how many messages the broker confirmed."""
        if not self._leader.is_leading or self._publisher.trouble is not None:
            return 0
        confirmed = 0
        for queue in self._queues:
            jobs = await self._store.run(unsent(queue, most=MOST_AT_ONCE))
            if jobs:
                done = await self._send(queue, jobs)
                confirmed += done
                if done == MOST_AT_ONCE:
                    self.wake()
        self.sent += confirmed
        return confirmed

    async def _send(self, queue: str, jobs: list[Unsent]) -> int:
        routing_key = self._settings.routing_key(queue)
        messages = [_message(routing_key, job) for job in jobs]
        confirmed = 0
        marking: asyncio.Task[int] | None = None
        for first in range(0, len(jobs), GROUP):
            group = jobs[first : first + GROUP]
            verdicts = await asyncio.wrap_future(self._publisher.publish(messages[first : first + GROUP]))
            there = [job for job, verdict in zip(group, verdicts, strict=True) if verdict is Verdict.CONFIRMED]
            if marking is not None:
                await marking
            marking = asyncio.create_task(self._store.run(mark_sent([(job.id, job.attempt) for job in there])))
            confirmed += len(there)
            if len(there) < len(group):
                break  # the rest would overtake those that have to wait
        if marking is not None:
            await marking
        return confirmed


def _message(routing_key: str, job: Unsent) -> Message:
    return request_for(
        routing_key=routing_key,
        job_id=job.id,
        task_name=job.task_name,
        attempt=job.attempt,
        created_at=job.created_at,
        payload=job.payload,
        context=job.context,
    )
