"""Takes messages from queues and acknowledges them when told to."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stagepost.transport.rabbitmq.link import Link

__all__ = ["Consumer", "Delivery"]


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
    channel: Any
    next_tag: int = 1
    """The smallest that is not acknowledged."""
    ahead: set[int] = field(default_factory=set)
    """Larger ones that are."""

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
            line = self._lines[self._lines_made] = Line(self._lines_made, channel)
            channel.add_on_close_callback(self._channel_closed)
            channel.add_on_cancel_callback(lambda _: self._break_off(f"queue {queue} was deleted"))
            if self._is_paused:
                return
            channel.basic_qos(prefetch_count=prefetch)
            channel.basic_consume(queue, self._receiver(queue, line), callback=self._consumes)

        return opened

    def _consumes(self, _frame: Any) -> None:
        self._consuming += 1
        if self._consuming == len(self._queues):
            self._works()

    def _receiver(self, queue: str, line: Line) -> Callable[[Any, Any, Any, bytes], None]:
        def receive(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self._inbox.append(
                Delivery(
                    queue,
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

    def _channel_closed(self, channel: Any, reason: object) -> None:
        if not self._stopping.is_set() and not channel.connection.is_closing:
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
