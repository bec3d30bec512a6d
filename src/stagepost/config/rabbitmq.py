"""Settings for RabbitMQ: which queues it carries, under which names, and with which limits."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

import msgspec

from stagepost.errors import ConfigurationError
from stagepost.model.alert import ALERT_QUEUE
from stagepost.model.option_types import check_types

__all__ = ["MOST_PREFETCH", "BrokerQueueSettings", "QueueType", "RabbitmqSettings"]

QueueType = Literal["quorum", "classic"]

NAME = re.compile(r"[A-Za-z0-9_.:\-]{1,180}")
LONGEST_SECONDS = 365 * 24 * 3600
MOST_SENDS = 1_000_000
MOST_PREFETCH = 65_535
LIMITS = {"prefetch": (0, MOST_PREFETCH), "message_ttl_seconds": (0.001, LONGEST_SECONDS), "max_length": (1, 2**31 - 1)}
"""The ranges that a broker accepts; a prefetch of 0 means no limit."""
LEAST_PRIORITY, MOST_PRIORITY = -(2**15), 2**15 - 1
"""The range of a job's priority."""
MOST_PRIORITIES = 10
"""Each level costs a classic queue memory and CPU time; RabbitMQ advises against more."""
QUORUM_HIGH = 5
"""Quorum queues take messages of priority 5 and more before those of priority 0 to 4."""


class BrokerQueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Overrides for one queue; a field left out has the value that applies to all queues."""

    name: str | None = None
    """The queue's name and routing key at the broker; the default is `<prefix>.<queue>`."""
    prefetch: int | None = None
    """Maximum number of messages that one worker process holds at once."""
    message_ttl_seconds: float | None = None
    """How long a message may wait before it becomes a dead letter."""
    max_length: int | None = None
    """Maximum number of messages that the queue holds."""
    queue_type: QueueType | None = None
    """`classic` or `quorum`, if it differs from the other queues."""
    priorities: list[int] | None = None
    """Job priorities at which a higher level begins at the broker; `[]` for none."""

    def __post_init__(self) -> None:
        check_types("rabbitmq.queue.", self)

    def message_priority(self, job_priority: int) -> int | None:
        """Return the AMQP priority of a job's message; None if all messages are equal."""
        if not self.priorities:
            return None
        level = bisect_right(self.priorities, job_priority)
        return level if self.queue_type == "classic" else min(level, 1) * QUORUM_HIGH


class RabbitmqSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How Stagepost uses a broker."""

    queues: list[str] | None = None
    """Queues that the broker carries; None means all except the alert queue. Other queues use the database alone."""
    prefix: str = "task"
    """Prefix of every name at the broker, so that several apps can share one broker."""
    exchange: str | None = None
    """Name of the topic exchange; the default is `<prefix>_exchange`."""
    queue_type: QueueType = "quorum"
    """`quorum` survives the loss of a node; `classic` is for brokers without quorum queues."""
    declare: bool = True
    """Let workers create the exchange and missing queues. Otherwise, run `stagepost rabbitmq apply` yourself."""
    prefetch: int | None = None
    """Maximum number of messages per queue that one worker process holds at once, including those it is processing;
    None means as many as the worker has slots, and more while jobs are short, about 0.1 s of work."""
    message_ttl_seconds: float | None = None
    """How long a message may wait in its queue before it becomes a dead letter; None means forever."""
    max_length: int | None = None
    """Maximum number of messages in a queue; further jobs wait in the database."""
    priorities: list[int] = []
    """Job priorities at which a higher level begins at the broker. With `[1, 10]` a job with a priority of 10 or more
    overtakes all others in the broker's queue, and one with 1 to 9 those below 1. Empty: first come, first served.
    Needs classic queues, or RabbitMQ 4.0 and one number."""
    confirm_timeout_seconds: float = 10.0
    """How long to wait for the broker to confirm a message; an unconfirmed message is published again."""
    unroutable_timeout_seconds: float = 60.0
    """How long a message may be unroutable before its job fails."""
    lost_after_seconds: float = 15.0
    """A message counts as lost after its queue has been empty and unread for this long."""
    quiet_time_seconds: float = 600.0
    """The same as `lost_after_seconds`, for a queue whose length the broker does not report."""
    max_sends: int = 3
    """How often a request is sent to an external program that does not answer before its job becomes a dead letter."""
    collect_dead_letters: bool = True
    """Store messages from the dead-letter queue, to list them with failed jobs; if false, they stay in that queue."""
    queue: dict[str, BrokerQueueSettings] = {}
    """Overrides for single queues, by name."""

    def __post_init__(self) -> None:
        check_types("rabbitmq.", self)
        names = {"prefix": self.prefix, "exchange": self.exchange_name}
        names |= {f"queue.{queue}.name": own.name for queue, own in self.queue.items() if own.name is not None}
        for what, name in names.items():
            if not NAME.fullmatch(name):
                raise ConfigurationError(f"rabbitmq.{what} is {name!r}: use 1 to 180 letters, digits and _ . : - only.")
        if ALERT_QUEUE in (self.queues or ()):
            raise ConfigurationError(
                f"rabbitmq.queues names {ALERT_QUEUE}. Alerts report trouble with the broker, so they cannot go "
                f"through it. Leave this queue out."
            )
        _check_limits("rabbitmq", self)
        for queue, own in self.queue.items():
            _check_limits(f"rabbitmq.queue.{queue}", own)
        _check_priorities("rabbitmq", self.of(""))
        for queue in self.queue:
            _check_priorities(f"rabbitmq.queue.{queue}", self.of(queue))
        if not 1 <= self.max_sends <= MOST_SENDS:
            raise ConfigurationError(f"rabbitmq.max_sends is {self.max_sends}: it must be 1 to {MOST_SENDS:,}.")
        for field in (
            "confirm_timeout_seconds",
            "unroutable_timeout_seconds",
            "lost_after_seconds",
            "quiet_time_seconds",
        ):
            if not 0 < getattr(self, field) <= LONGEST_SECONDS:
                raise ConfigurationError(
                    f"rabbitmq.{field} is {getattr(self, field)}: it must be more than 0 seconds and at most a year."
                )

    @property
    def exchange_name(self) -> str:
        """Name of the exchange that receives every message."""
        return self.exchange or f"{self.prefix}_exchange"

    @property
    def dead_letters(self) -> str:
        """Name and routing key of the dead-letter queue."""
        return f"{self.prefix}.dlq"

    @property
    def answers(self) -> str:
        """Name and routing key of the queue for answers of external programs."""
        return f"{self.prefix}.results"

    def carries(self, queue: str) -> bool:
        """Whether a queue's jobs go through the broker."""
        return queue != ALERT_QUEUE and (self.queues is None or queue in self.queues)

    def carried(self, queues: Iterable[str]) -> list[str]:
        """Select the queues whose jobs go through the broker."""
        return [queue for queue in queues if self.carries(queue)]

    def routing_key(self, queue: str) -> str:
        """Return a queue's name at the broker, which is also its routing key."""
        return self.of(queue).name or f"{self.prefix}.{queue}"

    def of(self, queue: str) -> BrokerQueueSettings:
        """Combine the settings for all queues with one queue's overrides.

        None then means no limit; for `prefetch` it means that the worker decides.
        """
        own = self.queue.get(queue, NOTHING)
        return BrokerQueueSettings(
            name=own.name,
            prefetch=self.prefetch if own.prefetch is None else own.prefetch,
            message_ttl_seconds=self.message_ttl_seconds
            if own.message_ttl_seconds is None
            else own.message_ttl_seconds,
            max_length=self.max_length if own.max_length is None else own.max_length,
            queue_type=self.queue_type if own.queue_type is None else own.queue_type,
            priorities=self.priorities if own.priorities is None else own.priorities,
        )


NOTHING = BrokerQueueSettings()


def _check_limits(where: str, settings: BrokerQueueSettings | RabbitmqSettings) -> None:
    for field, (least, most) in LIMITS.items():
        value = getattr(settings, field)
        if value is not None and not least <= value <= most:
            raise ConfigurationError(f"{where}.{field} is {value}: it must be {least} to {most:,}.")


def _check_priorities(where: str, settings: BrokerQueueSettings) -> None:
    """Refuse levels that a broker does not have, and a prefetch that leaves it nothing to sort."""
    levels = settings.priorities or []
    is_rising = all(lower < higher for lower, higher in pairwise(levels))
    if not is_rising or not all(LEAST_PRIORITY < level <= MOST_PRIORITY for level in levels):
        raise ConfigurationError(
            f"{where}.priorities is {levels}: give job priorities from {LEAST_PRIORITY + 1} to {MOST_PRIORITY}, "
            f"the smallest first."
        )
    if len(levels) > MOST_PRIORITIES:
        raise ConfigurationError(f"{where}.priorities has {len(levels)} numbers: give at most {MOST_PRIORITIES}.")
    if len(levels) > 1 and settings.queue_type == "quorum":
        raise ConfigurationError(
            f"{where}.priorities is {levels}, and a quorum queue has two levels. Give one number, or set "
            f'`queue_type = "classic"` there: a classic queue is on one node only.'
        )
    if levels and settings.prefetch == 0:
        raise ConfigurationError(
            f"{where}.prefetch is 0, so a worker takes all messages at once and the broker has none left to sort by "
            f"`priorities`. Set it to 1 or a little more."
        )
