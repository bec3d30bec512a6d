"""How things stand between the database and the broker, for people to look at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

import msgspec

from stagepost.clock import monotonic
from stagepost.config import Settings
from stagepost.config.urls import masked
from stagepost.errors import BrokerUnavailable, TransportError
from stagepost.store.dead_messages import count_dead_messages
from stagepost.store.queues import list_queues
from stagepost.store.sending import backlog, sent_queues
from stagepost.store.store import Store
from stagepost.transport.rabbitmq.admin import Depth, depths
from stagepost.transport.rabbitmq.topology import QueuePlan, topology_of

__all__ = ["MOST_COUNTED", "AskInBackground", "BrokerView", "QueueView", "carried_queues", "look_at_broker"]

Ask = Callable[[str, list[QueuePlan]], dict[str, Depth | None]]

MOST_COUNTED = 10_000
"""Unsent jobs of a queue are counted up to here."""


class QueueView(msgspec.Struct, frozen=True):
    """A queue on both sides."""

    name: str
    broker_name: str
    unsent: int
    """Jobs that wait for the broker to take their message, up to `MOST_COUNTED`."""
    waits_us: int | None
    """How long the one of them that waits longest does."""
    ready: int | None
    """Messages at the broker that nobody has taken; None if it does not tell."""
    consumers: int | None


class BrokerView(msgspec.Struct, frozen=True):
    """The broker and all queues that it carries."""

    address: str
    """Without its password."""
    trouble: str | None
    """Why it cannot be used; None if it can."""
    queues: list[QueueView]
    dead_letter_queue: str
    dead_letters: int | None
    """Messages in its queue of dead letters that nobody has taken; None if it does not tell."""
    dead_messages: int
    """Those that were taken from there and are kept in the database."""

    @property
    def unsent(self) -> int:
        """How many jobs wait for the broker."""
        return sum(queue.unsent for queue in self.queues)

    @property
    def waits_us(self) -> int | None:
        """How long the one that waits longest does."""
        return max((queue.waits_us for queue in self.queues if queue.waits_us is not None), default=None)


def carried_queues(settings: Settings, *, store: Store | None = None, known: Iterable[str] = ()) -> list[str]:
    """Name the queues that the broker carries: those of the settings, of an app's tasks, and those with jobs."""
    names = {*known, *(settings.rabbitmq.queues or ())}
    if store is not None:
        names |= {queue.name for queue in store.run(list_queues())} | set(store.run(sent_queues()))
        names.discard("*")
    return settings.rabbitmq.carried(sorted(names))


class AskInBackground:
    """Asks how queues stand in a thread, and does not wait long for a broker from which nothing comes at all."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._answer: Future[dict[str, Depth | None]] | None = None
        self._asked_at = 0.0

    def __call__(self, url: str, plans: list[QueuePlan]) -> dict[str, Depth | None]:
        """Ask, unless an answer is still to come, and wait a moment for it."""
        if self._answer is None:
            self._answer, self._asked_at = Future(), monotonic()
            threading.Thread(target=_answer, args=(self._answer, url, plans), name="stagepost-ask", daemon=True).start()
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


def _answer(answer: Future[dict[str, Depth | None]], url: str, plans: list[QueuePlan]) -> None:
    try:
        answer.set_result(depths(url, plans))
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        answer.set_exception(error)


def look_at_broker(
    store: Store, settings: Settings, *, known: Iterable[str] = (), ask: Ask = depths
) -> BrokerView | None:
    """Ask broker and database how things stand; None if no broker is used."""
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
