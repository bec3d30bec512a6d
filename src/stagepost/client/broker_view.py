"""The state of carried queues in the database and at the broker, for display."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial

import msgspec

from stagepost.clock import monotonic
from stagepost.config import Settings
from stagepost.config.urls import masked
from stagepost.database.store import Store
from stagepost.database.threads import call_in_thread
from stagepost.errors import BrokerUnavailable, TransportError
from stagepost.store.dead_messages import count_dead_messages
from stagepost.store.queues import list_queues
from stagepost.store.sending import backlog, sent_queues
from stagepost.transport.rabbitmq.admin import Depth, depths
from stagepost.transport.rabbitmq.topology import QueuePlan, topology_of

__all__ = ["MOST_COUNTED", "AskInBackground", "BrokerView", "QueueView", "carried_queues", "query_broker"]

Ask = Callable[[str, list[QueuePlan]], dict[str, Depth | None]]

MOST_COUNTED = 10_000
"""Unsent jobs of a queue are counted up to this number."""


class QueueView(msgspec.Struct, frozen=True):
    """A queue as the database and the broker see it."""

    name: str
    broker_name: str
    unsent: int
    """Jobs whose message the broker has not taken yet, up to `MOST_COUNTED`."""
    waits_us: int | None
    """How long the oldest unsent job has waited."""
    ready: int | None
    """Messages that wait at the broker; None if it does not report them."""
    consumers: int | None


class BrokerView(msgspec.Struct, frozen=True):
    """The broker and all queues that it carries."""

    address: str
    """The broker's URL without its password."""
    trouble: str | None
    """Why the broker cannot be used; None if it can."""
    queues: list[QueueView]
    dead_letter_queue: str
    dead_letters: int | None
    """Messages that wait in the dead-letter queue; None if the broker does not report them."""
    dead_messages: int
    """Messages that were taken from the dead-letter queue and are stored in the database."""

    @property
    def unsent(self) -> int:
        """Number of jobs whose message the broker has not taken yet."""
        return sum(queue.unsent for queue in self.queues)

    @property
    def waits_us(self) -> int | None:
        """How long the oldest unsent job of all queues has waited."""
        return max((queue.waits_us for queue in self.queues if queue.waits_us is not None), default=None)


def carried_queues(settings: Settings, *, store: Store | None = None, known: Iterable[str] = ()) -> list[str]:
    """List the queues that the broker carries, out of those in the settings, in an app's tasks, or with jobs."""
    names = {*known, *(settings.rabbitmq.queues or ())}
    if store is not None:
        names |= {queue.name for queue in store.run(list_queues())} | set(store.run(sent_queues()))
        names.discard("*")
    return settings.rabbitmq.carried(sorted(names))


class AskInBackground:
    """Queries the broker in a thread, so that an unresponsive broker delays the caller only briefly."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._answer: Future[dict[str, Depth | None]] | None = None
        self._asked_at = 0.0

    def __call__(self, url: str, plans: list[QueuePlan]) -> dict[str, Depth | None]:
        """Send a query, unless one is still unanswered, and wait a moment for the answer."""
        if self._answer is None:
            self._asked_at = monotonic()
            self._answer = call_in_thread(partial(depths, url, plans), name="stagepost-ask")
        answer = self._answer
        try:
            return answer.result(self._seconds)
        except TimeoutError:
            silent = monotonic() - self._asked_at
            reason = f"RabbitMQ at {masked(url)} cannot be used: it has not answered for {silent:.0f} s"
            raise BrokerUnavailable(reason) from None
        finally:
            if answer.done():
                self._answer = None


def query_broker(
    store: Store, settings: Settings, *, known: Iterable[str] = (), ask: Ask = depths
) -> BrokerView | None:
    """Query the broker and the database; returns None if no broker is configured."""
    url, own = settings.transport, settings.rabbitmq
    if url is None:
        return None
    names = carried_queues(settings, store=store, known=known)
    plans = topology_of(own, names).queues
    found: dict[str, Depth | None] = {}
    trouble = None
    try:
        found = ask(url, [plan for plan in plans if plan.carries or plan.name == own.dead_letters])
    except TransportError as error:
        trouble = str(error)
    dead = found.get(own.dead_letters)
    return BrokerView(
        address=masked(url),
        trouble=trouble,
        queues=[_queue(store, name, own.routing_key(name), found.get(own.routing_key(name))) for name in names],
        dead_letter_queue=own.dead_letters,
        dead_letters=None if dead is None else dead.ready,
        dead_messages=store.run(count_dead_messages()),
    )


def _queue(store: Store, name: str, broker_name: str, depth: Depth | None) -> QueueView:
    unsent = store.run(backlog(name, most=MOST_COUNTED))
    return QueueView(
        name=name,
        broker_name=broker_name,
        unsent=unsent.jobs,
        waits_us=unsent.waits_us,
        ready=None if depth is None else depth.ready,
        consumers=None if depth is None else depth.consumers,
    )
