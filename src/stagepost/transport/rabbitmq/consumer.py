"""Receives messages from queues and acknowledges them on request."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from stagepost.model.backoff import backoff_seconds
from stagepost.transport.rabbitmq.address import driver
from stagepost.transport.rabbitmq.admin import NOT_FOUND
from stagepost.transport.rabbitmq.broker_thread import BrokerThread

__all__ = ["Consumer", "Delivery", "Position"]

CHECK_SECONDS = 5.0
"""A queue that is silent for this long is checked at the broker."""
LONGEST_CHECK_SECONDS = 300.0
IDLE_CHECKS = 60
"""After this many silent checks in a row, the queue is consumed through a new channel, whatever the broker reports."""

Position = tuple[int, int]
"""A consumer's position in a queue; changes with every message and with every new channel."""


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message that this process holds until it is acknowledged or the connection ends."""

    queue: str
    """The queue's name at the broker."""
    line: int
    """The channel through which it came; tags of earlier channels are invalid."""
    tag: int
    body: bytes
    redelivered: bool
    routing_key: str
    properties: Any
    """The driver's undecoded properties; decoding is slow, so read them only if needed."""

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers that its sender set."""
        return self.properties.headers or {}

    @property
    def message_id(self) -> str | None:
        """The message id that its sender set."""
        found: str | None = self.properties.message_id
        return found

    @property
    def correlation_id(self) -> str | None:
        """The correlation id that its sender set."""
        found: str | None = self.properties.correlation_id
        return found


@dataclass
class ConsumedQueue:
    """A queue's channel, and the messages acknowledged on it so far."""

    number: int
    queue: str
    prefetch: int
    """Maximum number of unacknowledged messages; 0 means no limit."""
    channel: Any
    last_tag: int = 0
    """Tag of the last message received."""
    next_tag: int = 1
    """The smallest tag that is not acknowledged."""
    ahead: set[int] = field(default_factory=set)
    """Larger tags that are already acknowledged."""
    checked_tag: int = 0
    """The last tag received before the latest check at the broker."""
    is_passed_over: bool = False
    """Whether, at the latest check, messages were waiting that this consumer had room for."""
    is_asked: bool = False
    """Whether a check is still unanswered."""
    idle_checks: int = 0
    """Number of checks in a row that found nothing wrong."""
    is_replaced: bool = False
    """Whether another line has replaced this one."""

    def acknowledge(self, tags: set[int]) -> tuple[int | None, list[int]]:
        """Record new tags; returns the tag up to which all can be acknowledged at once, and those after a gap.

        The tag for a multiple acknowledgement must itself be new, because the broker has forgotten old ones.
        """
        tags = {tag for tag in tags if tag >= self.next_tag} - self.ahead
        self.ahead |= tags
        while self.next_tag in self.ahead:
            self.ahead.remove(self.next_tag)
            self.next_tag += 1
        together = [tag for tag in tags if tag < self.next_tag]
        return max(together, default=None), sorted(tag for tag in tags if tag >= self.next_tag)

    @property
    def held(self) -> int:
        """Number of unacknowledged messages in this process."""
        return self.last_tag - (self.next_tag - 1) - len(self.ahead)

    @property
    def has_room(self) -> bool:
        """Whether the prefetch limit allows another message."""
        return self.prefetch == 0 or self.held < self.prefetch

    @property
    def is_quiet(self) -> bool:
        """Whether no message came since the last check, although there was room."""
        return self.last_tag == self.checked_tag and self.has_room

    def is_dropped(self, *, ready: int, consumers: int) -> bool:
        """Decide whether the broker has forgotten this consumer; needs the same evidence in two checks in a row.

        The broker does not always notify consumers when a queue is deleted and immediately recreated. The new queue
        has no consumers, or messages wait there although this consumer has room. If the broker assigns messages to
        this consumer and does not deliver them, it reports neither. `StalledConsumerCheck` detects that from the
        database. Dead letters are not in the database, so only the fresh channel after `IDLE_CHECKS` helps them.
        """
        was_passed_over, self.is_passed_over = self.is_passed_over, self.is_quiet and (ready > 0 or consumers == 0)
        return was_passed_over and self.is_passed_over


class Consumer(BrokerThread):
    """Receives messages of several queues, each on a channel with its own prefetch."""

    def __init__(
        self,
        url: str,
        queues: Mapping[str, int],
        *,
        name: str,
        on_deliveries: Callable[[], None],
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """`queues` maps names at the broker to their prefetch; `on_deliveries` is called in this object's thread."""
        super().__init__(url, name=name, prepare=prepare)
        self._queues = dict(queues)
        self._on_deliveries = on_deliveries
        self._inbox: deque[Delivery] = deque()
        self._acks: deque[Delivery] = deque()
        self._ack_lock = threading.Lock()
        self._acks_are_asked = False
        self._lines: dict[int, ConsumedQueue] = {}
        self._lines_made = 0
        self._unchecked: set[str] = set()
        """Queues whose state the broker does not report."""
        self._alarms = 0
        """Number of reconnects since the last message."""
        self._consuming = 0
        self._is_paused = False

    def take(self, most: int) -> list[Delivery]:
        """Return up to `most` messages that have arrived."""
        taken: list[Delivery] = []
        while self._inbox and len(taken) < most:
            taken.append(self._inbox.popleft())
        return taken

    @property
    def has_more(self) -> bool:
        """Whether messages have arrived that were not taken yet."""
        return bool(self._inbox)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge messages, from any thread; those of a lost connection will be delivered again."""
        self._acks.extend(deliveries)
        with self._ack_lock:
            if self._acks_are_asked:
                return
            self._acks_are_asked = True
        if not self._later(self._send_acks):
            self._forget_acks()

    def give_back(self, deliveries: Iterable[Delivery]) -> None:
        """Return messages to their queues, from any thread; any consumer may get them again."""
        returned = list(deliveries)
        self._later(lambda: self._send_back(returned))

    def position(self, queue: str) -> Position | None:
        """Return the position in a queue, from any thread; None while no message can arrive."""
        lines = [line for line in tuple(self._lines.values()) if line.queue == queue and line.has_room]
        return (lines[-1].number, lines[-1].last_tag) if lines else None

    def reconnect(self, reason: str) -> None:
        """Replace the connection, from any thread."""
        self._later(lambda: self._break_off(reason))

    def pause(self) -> None:
        """Stop consuming; taken messages can still be acknowledged, the others return to their queues at once."""
        self._is_paused = True
        self._later(self._cancel)

    def _opened(self, connection: Any) -> None:
        self._consuming = 0
        for queue, prefetch in self._queues.items():
            connection.channel(on_open_callback=self._opener(queue, prefetch))

    def _opener(self, queue: str, prefetch: int) -> Callable[[Any], None]:
        def opened(channel: Any) -> None:
            self._lines_made += 1
            line = self._lines[self._lines_made] = ConsumedQueue(self._lines_made, queue, prefetch, channel)
            channel.add_on_close_callback(partial(self._channel_closed, line))
            channel.add_on_cancel_callback(lambda _: self._break_off(f"queue {queue} was deleted"))
            if self._is_paused:
                return
            channel.basic_qos(prefetch_count=prefetch)
            channel.basic_consume(queue, self._receiver(line), callback=self._consumes)
            self._check_later(line)

        return opened

    def _check_later(self, line: ConsumedQueue) -> None:
        pause = backoff_seconds(self._alarms + 1, first=CHECK_SECONDS, longest=LONGEST_CHECK_SECONDS)
        line.channel.connection.ioloop.call_later(pause, partial(self._check, line))

    def _check(self, line: ConsumedQueue) -> None:
        """Check a silent queue, on the line's own channel; the broker closes the channel if the queue is gone."""
        if not line.channel.is_open or self._is_paused or line.queue in self._unchecked:
            return
        if line.is_quiet:
            line.is_asked = True
            line.channel.queue_declare(line.queue, passive=True, callback=partial(self._checked, line))
            return
        if line.checked_tag != line.last_tag:
            self._alarms = 0
        line.checked_tag, line.is_passed_over, line.idle_checks = line.last_tag, False, 0
        self._check_later(line)

    def _checked(self, line: ConsumedQueue, frame: Any) -> None:
        line.is_asked = False
        if self._is_paused:
            return
        if line.is_dropped(ready=frame.method.message_count, consumers=frame.method.consumer_count):
            self._alarms += 1  # reconnect less often if it does not help, as with a single-active-consumer queue
            self._break_off(f"queue {line.queue} delivers nothing, although messages wait there or it has no consumer")
            return
        line.idle_checks += 1
        if line.idle_checks >= IDLE_CHECKS and not line.held:
            self._replace_channel(line)
        else:
            self._check_later(line)

    def _replace_channel(self, line: ConsumedQueue) -> None:
        """Consume through a new channel; the messages of the old channel return to the queue."""
        line.is_replaced = True
        self._lines.pop(line.number, None)
        line.channel.close()
        line.channel.connection.channel(on_open_callback=self._opener(line.queue, line.prefetch))

    def _consumes(self, _frame: Any) -> None:
        self._consuming += 1
        if self._consuming == len(self._queues):
            self._works()

    def _receiver(self, line: ConsumedQueue) -> Callable[[Any, Any, Any, bytes], None]:
        def receive(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
            line.last_tag = method.delivery_tag
            self._inbox.append(
                Delivery(
                    line.queue,
                    line.number,
                    method.delivery_tag,
                    body,
                    method.redelivered,
                    method.routing_key,
                    properties,
                )
            )
            self._on_deliveries()

        return receive

    def _channel_closed(self, line: ConsumedQueue, channel: Any, reason: Any) -> None:
        is_refused = isinstance(reason, driver().exceptions.ChannelClosedByBroker) and reason.reply_code != NOT_FOUND
        if line.is_asked and is_refused:
            self._unchecked.add(line.queue)
        if not (line.is_replaced or self._stopping.is_set() or channel.connection.is_closing):
            self._break_off(f"a channel was closed: {reason}")

    def _cancel(self) -> None:
        for line in self._lines.values():
            if line.channel.is_open:
                for tag in line.channel.consumer_tags:
                    line.channel.basic_cancel(tag, callback=lambda _: self._empty())
        self._empty()

    def _empty(self) -> None:
        self._send_back(self.take(len(self._inbox)))

    def _send_back(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            line = self._lines.get(delivery.line)
            if line is not None and line.channel.is_open:
                line.acknowledge({delivery.tag})  # the broker no longer knows this tag
                line.channel.basic_nack(delivery.tag, requeue=True)

    def _lost(self) -> None:
        self._lines = {}
        self._inbox.clear()
        self._forget_acks()

    def _forget_acks(self) -> None:
        with self._ack_lock:
            self._acks_are_asked = False
        self._acks.clear()

    def _send_acks(self) -> None:
        with self._ack_lock:
            self._acks_are_asked = False
        tags: dict[int, set[int]] = {}
        while self._acks:
            delivery = self._acks.popleft()
            tags.setdefault(delivery.line, set()).add(delivery.tag)
        for number, acked in tags.items():
            line = self._lines.get(number)
            if line is not None and line.channel.is_open:
                up_to, singly = line.acknowledge(acked)
                if up_to is not None:
                    line.channel.basic_ack(up_to, multiple=True)
                for tag in singly:
                    line.channel.basic_ack(tag)
