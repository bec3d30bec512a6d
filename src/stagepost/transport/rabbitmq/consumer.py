"""Takes messages from queues and acknowledges them when told to."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from stagepost.transport.rabbitmq.address import driver
from stagepost.transport.rabbitmq.admin import NOT_FOUND
from stagepost.transport.rabbitmq.link import Link

__all__ = ["Consumer", "Delivery", "Position"]

CHECK_SECONDS = 5.0
"""How long nothing comes from a queue before the broker is asked whether it would bring anything."""
LONGEST_CHECK_SECONDS = 300.0
IDLE_CHECKS = 60
"""After how many of these in a row a queue is consumed anew through another channel, whatever the broker says."""

Position = tuple[int, int]
"""How far a queue was consumed: changes with every message that comes from it, and when it is consumed anew."""


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message that this process has, until it is acknowledged or the connection ends."""

    queue: str
    """Its name at the broker."""
    line: int
    """Which channel it came through: tags of an earlier one mean nothing."""
    tag: int
    body: bytes
    redelivered: bool
    routing_key: str
    properties: Any
    """As the driver has them; reading one takes longer than all the rest, so nobody does without need."""

    @property
    def headers(self) -> Mapping[str, Any]:
        """What its sender told beside the body."""
        return self.properties.headers or {}

    @property
    def message_id(self) -> str | None:
        """Its sender's name for it."""
        found: str | None = self.properties.message_id
        return found

    @property
    def correlation_id(self) -> str | None:
        """What it belongs to."""
        found: str | None = self.properties.correlation_id
        return found


@dataclass
class Line:
    """A queue's channel, and what is acknowledged on it so far."""

    number: int
    queue: str
    prefetch: int
    """How many may be here unacknowledged; 0 if any number may."""
    channel: Any
    last_tag: int = 0
    """Of the last message that came."""
    next_tag: int = 1
    """The smallest that is not acknowledged."""
    ahead: set[int] = field(default_factory=set)
    """Larger ones that are."""
    checked_tag: int = 0
    """The last when the broker was last asked about the queue."""
    is_passed_over: bool = False
    """Whether messages waited there that could have come here, when the broker was last asked."""
    is_asked: bool = False
    """Whether an answer to that is due."""
    idle_checks: int = 0
    """How often in a row it was asked without a reason to doubt."""
    is_given_up: bool = False
    """Whether another line has taken its place."""

    def acknowledge(self, tags: set[int]) -> tuple[int | None, list[int]]:
        """Note tags that were not acknowledged before; returns up to which all can be at once, and those after a gap.

        The one that stands for all up to it must itself be new: the broker does not know old ones any more.
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
        """How many messages are here unacknowledged."""
        return self.last_tag - (self.next_tag - 1) - len(self.ahead)

    @property
    def has_room(self) -> bool:
        """Whether another message could come."""
        return self.prefetch == 0 or self.held < self.prefetch

    @property
    def is_quiet(self) -> bool:
        """Whether nothing came since the last question, and something could have."""
        return self.last_tag == self.checked_tag and self.has_room

    def is_dropped(self, *, ready: int, consumers: int) -> bool:
        """Decide from how the queue stands whether the broker has forgotten that we consume it, seen twice in a row.

        It does not always tell consumers of a queue that is deleted and made anew at once. Such a queue has none; or
        it has others, and messages wait there although we hold fewer than we may.
        """
        was_passed_over, self.is_passed_over = self.is_passed_over, self.is_quiet and (ready > 0 or consumers == 0)
        return was_passed_over and self.is_passed_over


class Consumer(Link):
    """Takes messages of several queues, each on a channel with its own prefetch."""

    def __init__(
        self,
        url: str,
        queues: Mapping[str, int],
        *,
        name: str,
        on_deliveries: Callable[[], None],
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """`queues` are names at the broker with their prefetch; `on_deliveries` is called in the link's thread."""
        super().__init__(url, name=name, prepare=prepare)
        self._queues = dict(queues)
        self._on_deliveries = on_deliveries
        self._inbox: deque[Delivery] = deque()
        self._acks: deque[Delivery] = deque()
        self._ack_lock = threading.Lock()
        self._acks_are_asked = False
        self._lines: dict[int, Line] = {}
        self._lines_made = 0
        self._unchecked: set[str] = set()
        """Queues of which the broker does not tell how they stand."""
        self._alarms = 0
        """How often connecting again was tried since something came."""
        self._consuming = 0
        self._is_paused = False

    def take(self, most: int) -> list[Delivery]:
        """Take what has arrived."""
        taken: list[Delivery] = []
        while self._inbox and len(taken) < most:
            taken.append(self._inbox.popleft())
        return taken

    @property
    def has_more(self) -> bool:
        """Whether something has arrived and was not taken."""
        return bool(self._inbox)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Let the broker forget messages; from any thread. Those of a connection that is gone will come again."""
        self._acks.extend(deliveries)
        with self._ack_lock:
            if self._acks_are_asked:
                return
            self._acks_are_asked = True
        if not self._later(self._send_acks):
            self._forget_acks()

    def give_back(self, deliveries: Iterable[Delivery]) -> None:
        """Let the broker bring messages again, to anybody; from any thread."""
        returned = list(deliveries)
        self._later(lambda: self._send_back(returned))

    def position(self, queue: str) -> Position | None:
        """Say how far a queue was consumed, from any thread; None while nothing can come from it."""
        lines = [line for line in tuple(self._lines.values()) if line.queue == queue and line.has_room]
        return (lines[-1].number, lines[-1].last_tag) if lines else None

    def connect_again(self, reason: str) -> None:
        """Give up the connection for another one, from any thread."""
        self._later(lambda: self._break_off(reason))

    def pause(self) -> None:
        """Ask for no more messages; what was taken can still be acknowledged, what was not goes back at once."""
        self._is_paused = True
        self._later(self._cancel)

    def _opened(self, connection: Any) -> None:
        self._consuming = 0
        for queue, prefetch in self._queues.items():
            connection.channel(on_open_callback=self._opener(queue, prefetch))

    def _opener(self, queue: str, prefetch: int) -> Callable[[Any], None]:
        def opened(channel: Any) -> None:
            self._lines_made += 1
            line = self._lines[self._lines_made] = Line(self._lines_made, queue, prefetch, channel)
            channel.add_on_close_callback(partial(self._channel_closed, line))
            channel.add_on_cancel_callback(lambda _: self._break_off(f"queue {queue} was deleted"))
            if self._is_paused:
                return
            channel.basic_qos(prefetch_count=prefetch)
            channel.basic_consume(queue, self._receiver(line), callback=self._consumes)
            self._check_later(line)

        return opened

    def _check_later(self, line: Line) -> None:
        pause = min(LONGEST_CHECK_SECONDS, CHECK_SECONDS * 2.0 ** min(self._alarms, 10))
        line.channel.connection.ioloop.call_later(pause, partial(self._check, line))

    def _check(self, line: Line) -> None:
        """Ask how a queue stands from which nothing comes; on the line's own channel, which ends if it is gone."""
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

    def _checked(self, line: Line, frame: Any) -> None:
        line.is_asked = False
        if self._is_paused:
            return
        if line.is_dropped(ready=frame.method.message_count, consumers=frame.method.consumer_count):
            self._alarms += 1  # where it does not help, as with a queue for one consumer at a time, it is tried less
            self._break_off(f"queue {line.queue} brings nothing, though messages wait there or it has no consumer")
            return
        line.idle_checks += 1
        if line.idle_checks >= IDLE_CHECKS and not line.held:
            self._consume_anew(line)
        else:
            self._check_later(line)

    def _consume_anew(self, line: Line) -> None:
        """Take a fresh channel; a queue that counts us and gives us nothing gets back what it gave to the old one."""
        line.is_given_up = True
        self._lines.pop(line.number, None)
        line.channel.close()
        line.channel.connection.channel(on_open_callback=self._opener(line.queue, line.prefetch))

    def _consumes(self, _frame: Any) -> None:
        self._consuming += 1
        if self._consuming == len(self._queues):
            self._works()

    def _receiver(self, line: Line) -> Callable[[Any, Any, Any, bytes], None]:
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

    def _channel_closed(self, line: Line, channel: Any, reason: Any) -> None:
        is_refused = isinstance(reason, driver().exceptions.ChannelClosedByBroker) and reason.reply_code != NOT_FOUND
        if line.is_asked and is_refused:
            self._unchecked.add(line.queue)
        if not (line.is_given_up or self._stopping.is_set() or channel.connection.is_closing):
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
                line.acknowledge({delivery.tag})  # the broker does not know it any more
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
