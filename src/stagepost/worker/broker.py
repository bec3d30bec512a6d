"""What a worker does with a broker: publish, take messages, look for lost ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from stagepost.client.app import App
from stagepost.store.async_store import AsyncStore
from stagepost.store.sending import sent_jobs, unsent
from stagepost.transport.rabbitmq.admin import apply
from stagepost.transport.rabbitmq.publisher import Publisher
from stagepost.transport.rabbitmq.topology import topology_of
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.reconciler import Reconciler
from stagepost.upkeep.relay import Relay
from stagepost.upkeep.service import Service
from stagepost.worker.flights import Flight, Flights
from stagepost.worker.receiver import BadDelivery, Receiver

__all__ = ["Broker"]

log = logging.getLogger(__name__)


class Broker:
    """The relay and the reconciler of all queues that are carried, and the receiver of those this worker runs."""

    def __init__(
        self,
        app: App,
        url: str,
        store: AsyncStore,
        flights: Flights,
        leader: Leader,
        *,
        queues: Sequence[str],
        owner: str,
        lease: timedelta,
        start: Callable[[list[Flight]], None],
    ) -> None:
        settings = app.settings.rabbitmq
        known = {*app.registry.queues, *queues, *(settings.queues or ())}
        self.queues = settings.carried(sorted(known))
        """All that are carried, whoever runs their jobs."""
        self._store = store

        def declare(queues: Sequence[str]) -> None:
            if settings.declare:
                apply(url, topology_of(settings, queues))

        def prepare() -> None:
            declare(self.relay.queues)

        self.publisher = Publisher(
            url, exchange=settings.exchange_name, timeout=settings.confirm_timeout, prepare=prepare
        )
        self.relay = Relay(
            store,
            leader,
            self.publisher,
            settings=settings,
            queues=self.queues,
            clock=app.clock,
            declare=declare,
        )
        self.reconciler = Reconciler(
            store, leader, url=url, settings=settings, queues=self.relay.queues, on_found=self.relay.wake
        )
        own = settings.carried(queues)
        self.receiver: Receiver | None = None
        if own:
            self.receiver = Receiver(
                store,
                flights,
                url=url,
                settings=settings,
                queues=own,
                task_names=[task.name for task in app.registry],
                owner=owner,
                lease=lease,
                start=start,
                clock=app.clock,
                prepare=prepare,
                on_bad=self._park,
            )

    @property
    def upkeep(self) -> list[Service]:
        """What goes on until the last job is written."""
        return [self.relay, self.reconciler]

    async def _park(self, bad: list[BadDelivery]) -> None:
        for delivery, reason in bad:
            log.error("a message in queue %s cannot be read: %s", delivery.queue, reason)

    async def is_idle(self) -> bool:
        """Whether no job is to be sent or on its way."""
        for queue in self.queues:
            if await self._store.run(unsent(queue, most=1)):
                return False
            if await self._store.run(sent_jobs(queue, older=timedelta(0), most=1)):
                return False
        return True
