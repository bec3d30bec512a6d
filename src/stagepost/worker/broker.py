"""Builds the parts of a worker that use a broker: they publish, take messages and answers, and look for lost ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property, partial

from stagepost.client.app import App
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.errors import ConfigurationError
from stagepost.loops.signals import Signals
from stagepost.store.sending import sent_jobs, unsent
from stagepost.transport.rabbitmq.admin import apply
from stagepost.transport.rabbitmq.publisher import Publisher
from stagepost.transport.rabbitmq.topology import topology_of
from stagepost.upkeep.alerting import AlertingRunner
from stagepost.upkeep.dead_letters import DeadLetterCollector
from stagepost.upkeep.leader import BROKER, Leader
from stagepost.upkeep.reconciler import Reconciler
from stagepost.upkeep.relay import Relay
from stagepost.worker.answers import Answers
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from stagepost.worker.receiver import Receiver
from stagepost.worker.unreadable_messages import UnreadableMessages

__all__ = ["BrokerParts", "check_remote"]


def check_remote(app: App) -> None:
    """Refuse remote tasks whose queue no broker carries to the program that runs them."""
    settings = app.settings
    for queue in app.registry.remote_queues:
        if settings.transport is None:
            raise ConfigurationError(
                f"queue {queue!r} has remote tasks, but no broker carries them to the program that runs them. "
                f"Set `transport` to the URL of a RabbitMQ server."
            )
        if not settings.rabbitmq.carries(queue):
            raise ConfigurationError(
                f"queue {queue!r} has remote tasks, but the broker does not carry it. Add it to `queues` in [rabbitmq]."
            )


class BrokerParts:
    """The relay and the reconciler of all carried queues, and the receiver of those that this worker runs."""

    def __init__(
        self,
        app: App,
        url: str,
        store: AsyncStore,
        attempts: LeasedAttempts,
        signals: Signals,
        *,
        queues: Sequence[str],
        slots: int,
        messages_ahead: Callable[[], int],
        owner: str,
        lease: timedelta,
        term: timedelta,
        start: Callable[[list[LeasedAttempt]], None],
        alerts: AlertingRunner,
    ) -> None:
        self._app = app
        self._url = url
        self._settings = settings = app.settings.rabbitmq
        self._store = store
        self._attempts = attempts
        self._signals = signals
        self._slots = slots
        self._messages_ahead = messages_ahead
        self._owner = owner
        self._lease = lease
        self._term = term
        self._start = start
        self._alerts = alerts
        known = {*app.registry.queues, *queues, *(settings.queues or ())}
        self.queues = settings.carried(sorted(known))
        """All carried queues that this worker knows, whether or not it runs their jobs."""
        self._published = list(self.queues)
        """All carried queues that the database knows: the relay adds to them."""
        remote = app.registry.remote_queues
        self._received = [queue for queue in settings.carried(queues) if queue not in remote]
        self._declare = partial(_declare, url, settings)
        self._prepare = partial(_declare, url, settings, self._published)

    @cached_property
    def broker_leader(self) -> Leader:
        """Whether this worker leads the work with the broker."""
        return Leader(
            self._store, self._signals, owner=self._owner, clock=self._app.clock, term=self._term, name=BROKER
        )

    @cached_property
    def relay(self) -> Relay:
        """Publishes jobs."""
        settings = self._settings
        publisher = Publisher(
            self._url, exchange=settings.exchange_name, timeout=settings.confirm_timeout_seconds, prepare=self._prepare
        )
        return Relay(
            self._store,
            self.broker_leader,
            publisher,
            settings=settings,
            queues=self._published,
            clock=self._app.clock,
            declare=self._declare,
            alerts=self._alerts,
        )

    @cached_property
    def reconciler(self) -> Reconciler:
        """Finds lost messages."""
        registry = self._app.registry
        return Reconciler(
            self._store,
            self.broker_leader,
            self._signals,
            url=self._url,
            settings=self._settings,
            queues=self._published,
            patience={queue: registry.remote_queues.get(queue) for queue in self._settings.carried(registry.queues)},
            has_answers=self.answers.has_some if self.answers else lambda _queue: False,
            alerts=self._alerts,
        )

    @cached_property
    def collector(self) -> DeadLetterCollector | None:
        """Stores dead letters, unless another program does."""
        if not self._settings.collect_dead_letters:
            return None
        return DeadLetterCollector(
            self._store,
            self.broker_leader,
            self._signals,
            url=self._url,
            settings=self._settings,
            prepare=self._prepare,
            alerts=self._alerts,
        )

    @cached_property
    def unreadable_messages(self) -> UnreadableMessages:
        """Moves unreadable messages to the dead letters."""
        return UnreadableMessages(self._store, self._signals, settings=self._settings)

    @cached_property
    def answers(self) -> Answers | None:
        """Takes the answers of programs that run remote tasks, if the app has any."""
        if not self._app.registry.remote_queues:
            return None
        return Answers(
            self._store,
            self._app.registry,
            self._signals,
            url=self._url,
            settings=self._settings,
            clock=self._app.clock,
            prepare=self._prepare,
            add_unreadable=self.unreadable_messages.add_one,
        )

    @cached_property
    def receiver(self) -> Receiver | None:
        """Leases the jobs that messages name, if this worker runs a carried queue."""
        if not self._received:
            return None
        registry = self._app.registry
        return Receiver(
            self._store,
            self._attempts,
            self._signals,
            url=self._url,
            settings=self._settings,
            queues=self._received,
            slots=self._slots,
            messages_ahead=self._messages_ahead,
            task_names=[task.name for task in registry if not task.options.remote],
            rules=registry.limit_rules,
            owner=self._owner,
            lease=self._lease,
            start=self._start,
            clock=self._app.clock,
            prepare=self._prepare,
            on_bad=self.unreadable_messages.add,
        )

    @property
    def ingesters(self) -> list[Receiver | Answers]:
        """The loops that take messages for this worker, to be stopped first and closed last."""
        return [service for service in (self.receiver, self.answers) if service is not None]

    @property
    def answered(self) -> int:
        """How many jobs answers have settled."""
        return self.answers.counted.settled if self.answers is not None else 0

    async def is_idle(self) -> bool:
        """Whether no job is waiting to be sent or on its way."""
        for queue in self.queues:
            if await self._store.run(unsent(queue, most=1)):
                return False
            if await self._store.run(sent_jobs(queue, older=timedelta(0), most=1)):
                return False
        return True


def _declare(url: str, settings: RabbitmqSettings, queues: Sequence[str]) -> None:
    """Create what the broker needs for these queues, unless `declare` is off."""
    if settings.declare:
        apply(url, topology_of(settings, queues))
