"""What a broker needs to have: one exchange, a queue per queue, one for answers and one for dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.errors import ConfigurationError

__all__ = ["QueuePlan", "Topology", "topology_of"]

LONGEST_NAME = 255


class QueuePlan(msgspec.Struct, frozen=True):
    """A durable queue, bound to the exchange by its own name."""

    name: str
    arguments: Mapping[str, str | int]
    carries: str | None = None
    """Stagepost's queue whose jobs come through it; None for answers and dead letters."""


class Topology(msgspec.Struct, frozen=True):
    """A durable topic exchange and its queues."""

    exchange: str
    queues: tuple[QueuePlan, ...]


def topology_of(settings: RabbitmqSettings, queues: Iterable[str]) -> Topology:
    """Plan what these queues need; nothing that leaves a queue without being taken is lost on the way.

    Messages that are rejected or grow too old go to the queue of dead letters, and do so at least once. A full queue
    refuses new messages instead of dropping old ones: those wait in the database.
    """
    plans = []
    for queue in sorted(queues):
        own = settings.of(queue)
        limits: dict[str, str | int] = {}
        if own.message_ttl is not None:
            limits["x-message-ttl"] = round(own.message_ttl * 1000)
        if own.max_length is not None:
            limits["x-max-length"] = own.max_length
        plans.append(QueuePlan(settings.routing_key(queue), {**_parking(settings), **limits}, queue))
    plans.append(QueuePlan(settings.answers, _parking(settings)))
    plans.append(QueuePlan(settings.dead_letters, {"x-queue-type": settings.queue_type}))
    _check_names(plans)
    return Topology(settings.exchange_name, tuple(plans))


def _parking(settings: RabbitmqSettings) -> dict[str, str | int]:
    arguments: dict[str, str | int] = {
        "x-queue-type": settings.queue_type,
        "x-dead-letter-exchange": settings.exchange_name,
        "x-dead-letter-routing-key": settings.dead_letters,
        "x-overflow": "reject-publish",
    }
    if settings.queue_type == "quorum":
        arguments["x-dead-letter-strategy"] = "at-least-once"
    return arguments


def _check_names(plans: Iterable[QueuePlan]) -> None:
    taken: dict[str, str] = {}
    for plan in plans:
        what = f"queue {plan.carries}" if plan.carries else "Stagepost itself"
        if plan.name in taken:
            raise ConfigurationError(
                f"rabbitmq: {taken[plan.name]} and {what} would both use {plan.name} at the broker. "
                f"Give one another name, as `name` in [rabbitmq.queue.…]."
            )
        if len(plan.name) > LONGEST_NAME:
            raise ConfigurationError(
                f"rabbitmq: {what} would be {plan.name[:50]}… at the broker, {len(plan.name)} characters of "
                f"{LONGEST_NAME} possible. Give it a shorter one, as `name` in [rabbitmq.queue.…], or a shorter prefix."
            )
        taken[plan.name] = what
