"""Inspects and prepares a broker on a short-lived connection: slow, rare and simple."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from stagepost.config.urls import masked, safe_cause, without_secrets
from stagepost.errors import BrokerUnavailable, TopologyConflict, TransportError
from stagepost.transport.rabbitmq.address import driver, parameters_of
from stagepost.transport.rabbitmq.topology import QueuePlan, Topology

__all__ = ["Comparison", "Depth", "apply", "compare", "depths", "unavailable", "why_no_priorities"]

NOT_FOUND = 404
QUORUM_PRIORITIES_SINCE = 4
"""The first RabbitMQ release whose quorum queues support message priorities."""
UNLIKE = re.compile(r"inequivalent arg '([^']+)' for (\w+) '([^']+)'.*: received (.+?) but current is (.+)", re.DOTALL)
VALUE = re.compile(r"(?:the value )?('[^']*').*", re.DOTALL)
SETTINGS = {
    "x-max-priority": "priorities",
    "x-queue-type": "queue_type",
    "x-dead-letter-strategy": "queue_type: only quorum queues have this",
    "x-message-ttl": "message_ttl_seconds",
    "x-max-length": "max_length",
}
"""The setting that determines each argument."""


class Depth(msgspec.Struct, frozen=True):
    """The state of a queue at the broker."""

    ready: int
    """Messages that wait in the queue."""
    consumers: int


def apply(url: str, topology: Topology) -> None:
    """Create the exchange and queues; raises `TopologyConflict` if one exists with different settings."""
    with _channel(url) as channel:
        version = _version(channel)
        for plan in topology.queues:
            if (reason := why_no_priorities(plan, version)) is not None:
                raise TransportError(f"RabbitMQ at {masked(url)}: {reason}")
        try:
            channel.exchange_declare(topology.exchange, exchange_type="topic", durable=True)
            for plan in topology.queues:
                channel.queue_declare(plan.name, durable=True, arguments=dict(plan.arguments))
                channel.queue_bind(plan.name, topology.exchange, routing_key=plan.name)
        except driver().exceptions.ChannelClosedByBroker as error:
            raise _refused(error, url) from error


def depths(url: str, plans: list[QueuePlan]) -> dict[str, Depth | None]:
    """Read the state of queues: a missing queue is empty, and None means that the broker refuses to tell."""
    found: dict[str, Depth | None] = {}
    left = list(plans)
    while left:
        with _channel(url) as channel:
            while left:
                name = left.pop(0).name
                try:
                    answer = channel.queue_declare(name, passive=True).method
                except driver().exceptions.ChannelClosedByBroker as error:
                    found[name] = Depth(0, 0) if error.reply_code == NOT_FOUND else None
                    break  # the broker has closed the channel
                found[name] = Depth(answer.message_count, answer.consumer_count)
    return found


def why_no_priorities(plan: QueuePlan, version: str) -> str | None:
    """Return why a broker of this version cannot sort a queue's messages as planned; None if it can.

    Older releases accept the priorities of messages in a quorum queue and ignore them.
    """
    release = version.partition(".")[0]
    if not plan.needs_quorum_priorities or not release.isdigit() or int(release) >= QUORUM_PRIORITIES_SINCE:
        return None
    return (
        f"queue {plan.name} is a quorum queue with `priorities`, which needs RabbitMQ {QUORUM_PRIORITIES_SINCE}.0; "
        f'this is {version}. Set `queue_type = "classic"` in [rabbitmq.queue.{plan.carries}], whose messages are then '
        f"on one node only, or remove `priorities`."
    )


def unavailable(url: str, error: BaseException) -> BrokerUnavailable:
    """Build the error for a broker that cannot be used, with the reason."""
    return BrokerUnavailable(f"RabbitMQ at {masked(url)} cannot be used: {without_secrets(_reason(error), url)}")


def _reason(error: BaseException) -> str:
    """Extract a message from an error that may wrap others and may itself have none."""
    if text := getattr(error, "reply_text", None):
        return str(text)
    held = (*getattr(error, "exceptions", ()), *error.args, getattr(error, "exception", None))
    inner = next((one for one in reversed(held) if isinstance(one, BaseException)), None)
    if inner is not None:
        return _reason(inner)
    return str(error) or type(error).__name__


@contextlib.contextmanager
def _channel(url: str) -> Iterator[Any]:
    """Open a connection and a channel for the body."""
    pika = driver()
    try:
        connection = pika.BlockingConnection(parameters_of(url))  # heartbeats close it if the broker stops answering
    except (pika.exceptions.AMQPError, OSError) as error:
        raise unavailable(url, error) from safe_cause(error, url)
    try:
        yield connection.channel()
    except pika.exceptions.ChannelClosedByBroker:
        raise
    except (pika.exceptions.AMQPError, OSError) as error:
        raise unavailable(url, error) from safe_cause(error, url)
    finally:
        with contextlib.suppress(Exception):  # it may already be closed
            connection.close()


def _refused(error: Any, url: str) -> TransportError:
    text = error.reply_text
    match error.reply_code:
        case 406:
            return TopologyConflict(
                f"RabbitMQ at {masked(url)}: {_difference(text)} RabbitMQ cannot change that. Change the settings "
                f"back, use another name or prefix, or drain and delete it and then run `stagepost rabbitmq "
                f"apply`. The broker's message: {text}"
            )
        case 403:
            return TransportError(
                f"RabbitMQ at {masked(url)}: {text}. Run `stagepost rabbitmq apply` as a user with that permission, "
                f"and set `declare = false` in [rabbitmq]."
            )
        case _:
            return TransportError(f"RabbitMQ at {masked(url)}: {text}")


def _difference(text: str) -> str:
    """Describe how something differs from the plan, with both values if the broker reports them."""
    if (found := UNLIKE.search(text)) is None:
        return "It was declared differently before."
    argument, what, name, wanted, there = found.groups()
    setting = f" ({SETTINGS[argument]})" if argument in SETTINGS else ""
    return (
        f"{what} {name} was declared with {argument} {VALUE.sub(_first, there)}, and the settings ask for "
        f"{VALUE.sub(_first, wanted)}{setting}."
    )


def _first(found: re.Match[str]) -> str:
    return found[1]


def _version(channel: Any) -> str:
    """Return the broker's version; the driver has no public way to read it from a blocking connection."""
    properties = getattr(getattr(channel.connection, "_impl", None), "server_properties", None) or {}
    return str(properties.get("version", ""))


class Comparison(msgspec.Struct, frozen=True):
    """How one required exchange or queue at the broker compares with the plan."""

    what: Literal["exchange", "queue"]
    name: str
    status: Literal["ok", "missing", "conflict", "refused", "unknown"]
    message: str

    @property
    def is_usable(self) -> bool:
        """Whether it can be used, even if its settings are not known."""
        return self.status in {"ok", "unknown"}


def compare(url: str, topology: Topology, *, may_declare: bool = True) -> list[Comparison]:
    """Compare the broker with the plan without creating anything; `may_declare` means that workers declare it."""
    exchange = _compare(
        url,
        "exchange",
        topology.exchange,
        lambda channel, is_passive: channel.exchange_declare(
            topology.exchange, exchange_type="topic", durable=True, passive=is_passive
        ),
        may_declare=may_declare,
    )
    return [exchange, *(_compare_queue(url, plan, may_declare=may_declare) for plan in topology.queues)]


def _compare_queue(url: str, plan: QueuePlan, *, may_declare: bool) -> Comparison:
    reasons: list[str] = []

    def declare(channel: Any, is_passive: bool) -> None:
        reasons[:] = filter(None, [why_no_priorities(plan, _version(channel))])
        channel.queue_declare(plan.name, durable=True, arguments=dict(plan.arguments), passive=is_passive)

    compared = _compare(url, "queue", plan.name, declare, may_declare=may_declare)
    return Comparison("queue", plan.name, "conflict", reasons[0]) if reasons else compared


def _compare(
    url: str,
    what: Literal["exchange", "queue"],
    name: str,
    declare: Callable[[Any, bool], None],
    *,
    may_declare: bool,
) -> Comparison:
    """Check first that the thing exists, because declaring it then compares it instead of creating it."""
    for is_passive in (True, False):
        try:
            with _channel(url) as channel:
                declare(channel, is_passive)
        except driver().exceptions.ChannelClosedByBroker as error:
            match error.reply_code:
                case 404:
                    return Comparison(what, name, "missing", "It does not exist. Run `stagepost rabbitmq apply`.")
                case 406:
                    return Comparison(what, name, "conflict", str(_refused(error, url)))
                case 403 if not is_passive and not may_declare:
                    seen = "It exists. This user may not declare it, so its settings cannot be compared."
                    return Comparison(what, name, "unknown", seen)
                case _:
                    return Comparison(what, name, "refused", str(_refused(error, url)))
    return Comparison(what, name, "ok", "It exists, as planned.")
