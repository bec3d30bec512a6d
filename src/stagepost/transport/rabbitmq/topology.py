"""Plans what a broker must have: an exchange, one queue per carried queue, one for answers, one for dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from stagepost.config.rabbitmq import QueueType, RabbitmqSettings
from stagepost.errors import ConfigurationError

__all__ = ["QueuePlan", "Topology", "topology_of"]

LONGEST_NAME = 255


class QueuePlan(msgspec.Struct, frozen=True):
    """A durable queue, bound to the exchange by its own name."""

    name: str
    arguments: Mapping[str, str | int]
    carries: str | None = None
    """Stagepost's queue whose jobs it carries; None for answers and dead letters."""
    priorities: tuple[int, ...] = ()
    """Job priorities at which a higher level begins; empty for first come, first served."""

    @property
    def needs_quorum_priorities(self) -> bool:
        """Whether it is a quorum queue that must sort messages by priority."""
        return bool(self.priorities) and self.arguments["x-queue-type"] == "quorum"


class Topology(msgspec.Struct, frozen=True):
    """A durable topic exchange and its queues."""

    exchange: str
    queues: tuple[QueuePlan, ...]


def topology_of(settings: RabbitmqSettings, queues: Iterable[str]) -> Topology:
    """Plan what these queues need, so that no message is lost that leaves a queue without being consumed.

    Rejected and expired messages go to the dead-letter queue, at least once. A full queue refuses new messages, which
    then wait in the database, instead of dropping old ones.
    """
    plans = []
    for queue in sorted(queues):
        own = settings.of(queue)
        limits: dict[str, str | int] = {}
        if own.message_ttl_seconds is not None:
            limits["x-message-ttl"] = round(own.message_ttl_seconds * 1000)
        if own.max_length is not None:
            limits["x-max-length"] = own.max_length
        queue_type = own.queue_type or settings.queue_type
        priorities = tuple(own.priorities or ())
        if priorities and queue_type == "classic":
            limits["x-max-priority"] = len(priorities)
        arguments = {**_dead_lettering(settings, queue_type), **limits}
        plans.append(QueuePlan(settings.routing_key(queue), arguments, queue, priorities))
    plans.append(QueuePlan(settings.answers, _dead_lettering(settings, settings.queue_type)))
    plans.append(QueuePlan(settings.dead_letters, {"x-queue-type": settings.queue_type}))
    _check_names(plans)
    return Topology(settings.exchange_name, tuple(plans))


def _dead_lettering(settings: RabbitmqSettings, queue_type: QueueType) -> dict[str, str | int]:
    arguments: dict[str, str | int] = {
        "x-queue-type": queue_type,
        "x-dead-letter-exchange": settings.exchange_name,
        "x-dead-letter-routing-key": settings.dead_letters,
        "x-overflow": "reject-publish",
    }
    if queue_type == "quorum":
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
