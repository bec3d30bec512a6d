"""What a worker does with a broker: publish, take messages and answers, look for lost ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from stagepost.client.app import App
from stagepost.database.async_store import AsyncStore
from stagepost.errors import ConfigurationError
from stagepost.loops.service import Service
from stagepost.store.sending import sent_jobs, unsent
from stagepost.transport.rabbitmq.admin import apply
from stagepost.transport.rabbitmq.publisher import Publisher
from stagepost.transport.rabbitmq.topology import topology_of
from stagepost.upkeep.alarm import AlertingRunner
from stagepost.upkeep.dead_letters import DeadLetterCollector
from stagepost.upkeep.leader import BROKER, Leader
from stagepost.upkeep.reconciler import Reconciler
from stagepost.upkeep.relay import Relay
from stagepost.worker.answers import Answers
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from stagepost.worker.receiver import Receiver
from stagepost.worker.unreadable_messages import UnreadableMessages

__all__ = ["Broker", "check_remote"]


def check_remote(app: App) -> None:
    """Refuse to work with remote tasks whose jobs no broker brings to the program that runs them."""
    settings = app.settings
    for queue in app.registry.remote_queues:
        if settings.transport is None:
            raise ConfigurationError(
                f"queue {queue!r} has remote tasks, and there is no broker to bring them to the program that runs "
                f"them. Set `transport` to the URL of a RabbitMQ."
            )
        if not settings.rabbitmq.carries(queue):
            raise ConfigurationError(
                f"queue {queue!r} has remote tasks, and the broker does not carry it. Add it to `queues` in [rabbitmq]."
            )


class Broker:
    """The relay and the reconciler of all queues that are carried, and the receiver of those this worker runs."""

    def __init__(
        self,
        app: App,
        url: str,
        store: AsyncStore,
        attempts: LeasedAttempts,
        *,
        queues: Sequence[str],
        owner: str,
        lease: timedelta,
        term: timedelta,
        start: Callable[[list[LeasedAttempt]], None],
        alarm: AlertingRunner,
    ) -> None:
        settings = app.settings.rabbitmq
        known = {*app.registry.queues, *queues, *(settings.queues or ())}
        self.queues = settings.carried(sorted(known))
        """All that are carried, whoever runs their jobs."""
        self._store = store
        self.leader = leader = Leader(store, owner=owner, clock=app.clock, term=term, name=BROKER)

        def declare(queues: Sequence[str]) -> None:
            if settings.declare:
                apply(url, topology_of(settings, queues))

        def prepare() -> None:
            declare(self.relay.queues)

        self.publisher = Publisher(
            url, exchange=settings.exchange_name, timeout=settings.confirm_timeout_seconds, prepare=prepare
        )
        self.relay = Relay(
            store,
            leader,
            self.publisher,
            settings=settings,
            queues=self.queues,
            clock=app.clock,
            declare=declare,
            alarm=alarm,
        )
        remote = app.registry.remote_queues
        self.reconciler = Reconciler(
            store,
            leader,
            url=url,
            settings=settings,
            queues=self.relay.queues,
            patience={queue: remote.get(queue) for queue in settings.carried(app.registry.queues)},
            on_found=self.relay.wake,
            has_answers=lambda queue: self.answers is not None and self.answers.has_some(queue),
            alarm=alarm,
        )
        self.collector: DeadLetterCollector | None = None
        if settings.collect_dead_letters:
            self.collector = DeadLetterCollector(
                store, leader, url=url, settings=settings, prepare=prepare, alarm=alarm
            )
        self.parking = UnreadableMessages(store, settings=settings, on_parked=self.relay.wake)
        self.answers: Answers | None = None
        """Of programs that run remote tasks, where the app has any."""
        if remote:
            self.answers = Answers(
                store,
                app.registry,
                url=url,
                settings=settings,
                clock=app.clock,
                prepare=prepare,
                park=self.parking.park_one,
            )
            self.answers.on_settled = self.relay.wake
        own = [queue for queue in settings.carried(queues) if queue not in remote]
        self.receiver: Receiver | None = None
        if own:
            self.receiver = Receiver(
                store,
                attempts,
                url=url,
                settings=settings,
                queues=own,
                task_names=[task.name for task in app.registry if not task.options.remote],
                rules=app.registry.limit_rules,
                owner=owner,
                lease=lease,
                start=start,
                clock=app.clock,
                prepare=prepare,
                on_bad=self.parking.park,
            )

    @property
    def taking(self) -> list[Receiver | Answers]:
        """What takes messages, to be stopped first and closed last."""
        return [service for service in (self.receiver, self.answers) if service is not None]

    @property
    def upkeep(self) -> list[Service]:
        """What goes on until the last job is written."""
        return [self.leader, self.relay, self.reconciler, *([self.collector] if self.collector else ())]

    @property
    def answered(self) -> int:
        """How many jobs answers have settled."""
        return self.answers.counted.settled if self.answers is not None else 0

    async def is_idle(self) -> bool:
        """Whether no job is to be sent or on its way."""
        for queue in self.queues:
            if await self._store.run(unsent(queue, most=1)):
                return False
            if await self._store.run(sent_jobs(queue, older=timedelta(0), most=1)):
                return False
        return True
