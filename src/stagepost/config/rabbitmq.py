"""How queues are carried by RabbitMQ: which, under which names, and with which limits."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

import msgspec

from stagepost.errors import ConfigurationError
from stagepost.model.alert import ALERT_QUEUE

__all__ = ["QueueSettings", "QueueType", "RabbitmqSettings"]

QueueType = Literal["quorum", "classic"]

NAME = re.compile(r"[A-Za-z0-9_.:\-]{1,180}")
LONGEST_SECONDS = 365 * 24 * 3600
MOST_SENDS = 1_000_000
LIMITS = {"prefetch": (0, 65_535), "message_ttl": (0.001, LONGEST_SECONDS), "max_length": (1, 2**31 - 1)}
"""From and to which these make sense to a broker; a prefetch of 0 is none."""
LEAST_PRIORITY, MOST_PRIORITY = -(2**15), 2**15 - 1
"""Of a job."""
MOST_PRIORITIES = 10
"""Each level costs a classic queue memory and CPU time; RabbitMQ advises against more."""
QUORUM_HIGH = 5
"""Quorum queues take messages of priority 5 and more before those of priority 0 to 4."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs for one queue; what is left out is as for all."""

    name: str | None = None
    """Its name at the broker, and its routing key; `<prefix>.<queue>` unless given."""
    prefetch: int | None = None
    """How many messages one worker process has at once."""
    message_ttl: float | None = None
    """How long a message waits before it becomes a dead letter."""
    max_length: int | None = None
    """How many messages it holds."""
    queue_type: QueueType | None = None
    """`classic` or `quorum`, if it differs from the other queues."""
    priorities: list[int] | None = None
    """Job priorities at which a higher level begins at the broker; `[]` for none."""

    def message_priority(self, job_priority: int) -> int | None:
        """The AMQP priority of a job's message, once nothing is left out; None if all messages are equal."""
        if not self.priorities:
            return None
        level = bisect_right(self.priorities, job_priority)
        return level if self.queue_type == "classic" else min(level, 1) * QUORUM_HIGH


class RabbitmqSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How Stagepost uses a broker. Durations are seconds."""

    queues: list[str] | None = None
    """Which queues it carries; all but that of alerts, unless some are named. Others stay with the database alone."""
    prefix: str = "task"
    """What the names at the broker begin with: several apps can share one."""
    exchange: str | None = None
    """A topic exchange; `<prefix>_exchange` unless given."""
    queue_type: QueueType = "quorum"
    """`quorum` survives the loss of a node; `classic` is for brokers without it."""
    declare: bool = True
    """Make exchange and queues where they are missing. Otherwise somebody runs `stagepost rabbitmq apply`."""
    prefetch: int = 1
    """How many messages of a queue one worker process has at once, those that it works on included."""
    message_ttl: float | None = None
    """How long a message waits in its queue before it becomes a dead letter; as long as it takes, unless given."""
    max_length: int | None = None
    """How many messages a queue holds; the rest waits in the database."""
    priorities: list[int] = []
    """Job priorities at which a higher level begins at the broker. With `[1, 10]` a job with a priority of 10 or more
    overtakes all others in the broker's queue, and one with 1 to 9 those below 1. Empty: first come, first served.
    Needs classic queues, or RabbitMQ 4.0 and one number."""
    confirm_timeout: float = 10.0
    """How long the broker may take to confirm what was published; what it does not confirm is published again."""
    unroutable_timeout: float = 60.0
    """How long a message may have nowhere to go before its job fails."""
    lost_after: float = 15.0
    """How long a queue must be empty, and nothing taken from it, before a message that should be there is lost."""
    quiet_time: float = 600.0
    """The same for a queue whose length the broker does not tell."""
    most_sends: int = 3
    """How often a request is sent to a foreign program that does not answer before its job becomes a dead letter."""
    collect_dead_letters: bool = True
    """Take what comes into the queue of dead letters and list it with failed jobs; without it, that is for others."""
    queue: dict[str, QueueSettings] = {}
    """What differs for some queues."""

    def __post_init__(self) -> None:
        names = {"prefix": self.prefix, "exchange": self.exchange_name}
        names |= {f"queue.{queue}.name": own.name for queue, own in self.queue.items() if own.name is not None}
        for what, name in names.items():
            if not NAME.fullmatch(name):
                raise ConfigurationError(f"rabbitmq.{what} is {name!r}: use 1 to 180 letters, digits and _ . : - only.")
        if ALERT_QUEUE in (self.queues or ()):
            raise ConfigurationError(
                f"rabbitmq.queues names {ALERT_QUEUE}, whose jobs tell of the broker's trouble and must not wait for "
                f"the broker. Leave it out."
            )
        _check_limits("rabbitmq", self)
        for queue, own in self.queue.items():
            _check_limits(f"rabbitmq.queue.{queue}", own)
        _check_priorities("rabbitmq", self.of(""))
        for queue in self.queue:
            _check_priorities(f"rabbitmq.queue.{queue}", self.of(queue))
        if not 1 <= self.most_sends <= MOST_SENDS:
            raise ConfigurationError(f"rabbitmq.most_sends is {self.most_sends}: it must be 1 to {MOST_SENDS:,}.")
        for field in ("confirm_timeout", "unroutable_timeout", "lost_after", "quiet_time"):
            if not 0 < getattr(self, field) <= LONGEST_SECONDS:
                raise ConfigurationError(
                    f"rabbitmq.{field} is {getattr(self, field)}: it must be more than 0 seconds, and at most a year."
                )

    @property
    def exchange_name(self) -> str:
        """The exchange that everything is published to."""
        return self.exchange or f"{self.prefix}_exchange"

    @property
    def dead_letters(self) -> str:
        """The queue of dead letters, and its routing key."""
        return f"{self.prefix}.dlq"

    @property
    def answers(self) -> str:
        """The queue that foreign programs answer to, and its routing key."""
        return f"{self.prefix}.results"

    def carries(self, queue: str) -> bool:
        """Whether a queue's jobs go through the broker."""
        return queue != ALERT_QUEUE and (self.queues is None or queue in self.queues)

    def carried(self, queues: Iterable[str]) -> list[str]:
        """Those of some queues that go through the broker."""
        return [queue for queue in queues if self.carries(queue)]

    def routing_key(self, queue: str) -> str:
        """A queue's name at the broker."""
        return self.of(queue).name or f"{self.prefix}.{queue}"

    def of(self, queue: str) -> QueueSettings:
        """What holds for one queue, with nothing left out but what is unlimited."""
        own = self.queue.get(queue, NOTHING)
        return QueueSettings(
            name=own.name,
            prefetch=self.prefetch if own.prefetch is None else own.prefetch,
            message_ttl=self.message_ttl if own.message_ttl is None else own.message_ttl,
            max_length=self.max_length if own.max_length is None else own.max_length,
            queue_type=self.queue_type if own.queue_type is None else own.queue_type,
            priorities=self.priorities if own.priorities is None else own.priorities,
        )


NOTHING = QueueSettings()


def _check_limits(where: str, settings: QueueSettings | RabbitmqSettings) -> None:
    for field, (least, most) in LIMITS.items():
        value = getattr(settings, field)
        if value is not None and not least <= value <= most:
            raise ConfigurationError(f"{where}.{field} is {value}: it must be {least} to {most:,}.")


def _check_priorities(where: str, settings: QueueSettings) -> None:
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
