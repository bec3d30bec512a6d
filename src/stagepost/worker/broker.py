"""What a worker does with a broker: publish, take messages, look for lost ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from stagepost.client.app import App
from stagepost.store.async_store import AsyncStore
from stagepost.store.sending import sent_jobs, unsent
from stagepost.transport.rabbitmq.admin import apply
from stagepost.transport.rabbitmq.publisher import Publisher
from stagepost.transport.rabbitmq.topology import topology_of
from stagepost.upkeep.dead_letters import DeadLetterCollector
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.reconciler import Reconciler
from stagepost.upkeep.relay import Relay
from stagepost.upkeep.service import Service
from stagepost.worker.flights import Flight, Flights
from stagepost.worker.parking import Parking
from stagepost.worker.receiver import Receiver

__all__ = ["Broker"]


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
        topology = topology_of(settings, self.queues)

        def prepare() -> None:
            if settings.declare:
                apply(url, topology)

        self.publisher = Publisher(
            url, exchange=settings.exchange_name, timeout=settings.confirm_timeout, prepare=prepare
        )
        self.relay = Relay(store, leader, self.publisher, settings=settings, queues=self.queues, clock=app.clock)
        self.reconciler = Reconciler(
            store, leader, url=url, settings=settings, queues=self.queues, on_found=self.relay.wake
        )
        self.collector: DeadLetterCollector | None = None
        if settings.collect_dead_letters:
            self.collector = DeadLetterCollector(store, leader, url=url, settings=settings, prepare=prepare)
        self.parking = Parking(store, settings=settings, on_parked=self.relay.wake)
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
                on_bad=self.parking.park,
            )

    @property
    def upkeep(self) -> list[Service]:
        """What goes on until the last job is written."""
        return [self.relay, self.reconciler, *([self.collector] if self.collector else ())]

    async def is_idle(self) -> bool:
        """Whether no job is to be sent or on its way."""
        for queue in self.queues:
            if await self._store.run(unsent(queue, most=1)):
                return False
            if await self._store.run(sent_jobs(queue, older=timedelta(0), most=1)):
                return False
        return True
