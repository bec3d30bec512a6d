"""Receives messages from queues and acknowledges them on request."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from stagepost.clock import monotonic
from stagepost.model.backoff import backoff_seconds
from stagepost.transport.rabbitmq.address import driver
from stagepost.transport.rabbitmq.admin import NOT_FOUND
from stagepost.transport.rabbitmq.broker_thread import BrokerThread
from stagepost.transport.rabbitmq.consumed_queue import ConsumedQueue, Delivery
from stagepost.transport.rabbitmq.deliveries import keep_receiving

__all__ = ["Consumer", "Position"]

CHECK_SECONDS = 5.0
"""A queue that is silent for this long is checked at the broker."""
LONGEST_CHECK_SECONDS = 300.0
IDLE_CHECKS = 60
"""After this many silent checks in a row, the queue is consumed through a new channel, whatever the broker reports."""
MOST_AHEAD_BYTES = 16 * 1024 * 1024
"""How much of messages may be read ahead; further ones return to their queues."""
REST_SECONDS = 10.0
"""How long no messages are read ahead after they took too much memory."""

Position = tuple[int, int]
"""A consumer's position in a queue; changes with every message and with every new channel."""


class Consumer(BrokerThread):
    """Receives messages of several queues, each on a channel with its own prefetch.

    A consumer's prefetch cannot be changed. To read ahead, a queue is consumed through additional channels, which are
    closed when the messages that came through them are acknowledged.
    """

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
        self._withheld: dict[str, deque[Delivery]] = {}
        self._ahead_bytes = 0
        self._reads_ahead_from = 0.0
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

    def read_ahead(self, queue: str, messages: int) -> None:
        """Hold about this many messages of a queue beyond its prefetch, from any thread; call it as often as needed."""
        offered = sum(line.prefetch for line in self._lines_ahead(queue))
        if messages > 1.5 * offered or messages < offered / 2:
            self._later(partial(self._offer_ahead, queue, messages))

    def withhold(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge messages only after `make_room`, from any thread: until then no others arrive in their place."""
        withheld = list(deliveries)
        self._later(lambda: self._withhold(withheld))

    def make_room(self, messages: int) -> None:
        """Acknowledge up to this many withheld messages of each queue, from any thread."""
        if self._withheld:
            self._later(lambda: self._release_withheld(messages))

    def position(self, queue: str) -> Position | None:
        """Return the position in a queue, from any thread; None while no message can arrive."""
        lines = [line for line in tuple(self._lines.values()) if line.queue == queue]
        if not any(line.has_room for line in lines):
            return None
        return lines[-1].number, sum(line.last_tag for line in lines)

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
            self._open_line(connection, queue, prefetch)

    def _open_line(self, connection: Any, queue: str, prefetch: int, *, is_ahead: bool = False) -> None:
        self._lines_made += 1
        line = self._lines[self._lines_made] = ConsumedQueue(self._lines_made, queue, prefetch, is_ahead=is_ahead)
        line.channel = connection.channel(on_open_callback=lambda _: self._consume(line))

    def _consume(self, line: ConsumedQueue) -> None:
        channel = line.channel
        channel.add_on_close_callback(partial(self._channel_closed, line))
        channel.add_on_cancel_callback(lambda _: self._break_off(f"queue {line.queue} was deleted"))
        if line.is_ending:
            self._cancelled(line)
        elif not self._is_paused:
            channel.basic_qos(prefetch_count=line.prefetch)
            channel.basic_consume(line.queue, self._receiver(line), callback=partial(self._consumes, line))
            if not line.is_ahead:
                self._check_later(line)

    def _lines_ahead(self, queue: str | None = None) -> list[ConsumedQueue]:
        lines = tuple(self._lines.values())
        return [line for line in lines if line.is_ahead and not line.is_ending and queue in (None, line.queue)]

    def _offer_ahead(self, queue: str, messages: int) -> None:
        """Read a queue ahead through one more channel, or stop the newest of those that do."""
        always = [line for line in self._lines.values() if line.queue == queue and not line.is_ahead]
        if self._is_paused or not always or not always[-1].channel.is_open:
            return
        lines = self._lines_ahead(queue)
        offered = sum(line.prefetch for line in lines)
        while offered > messages:
            newest = lines.pop()
            offered -= newest.prefetch
            self._end(newest)
        if messages - offered > offered // 2 and monotonic() >= self._reads_ahead_from:
            self._open_line(always[-1].channel.connection, queue, messages - offered, is_ahead=True)

    def _end(self, line: ConsumedQueue, *, returns_rest: bool = False) -> None:
        """Stop consuming through a channel. With `returns_rest`, the driver returns messages that still arrive."""
        line.is_ending = True
        if line.channel.is_open:
            for tag in line.channel.consumer_tags:
                line.channel.basic_cancel(tag, callback=lambda _: self._cancelled(line))
                if not returns_rest:
                    keep_receiving(line.channel, tag)

    def _cancelled(self, line: ConsumedQueue) -> None:
        line.is_cancelled = True
        if self._is_paused:
            self._empty()
        self._close_if_over(line)

    def _close_if_over(self, line: ConsumedQueue) -> None:
        if line.is_over and not line.is_closed:
            self._close_line(line)

    def _close_line(self, line: ConsumedQueue) -> None:
        line.is_closed = True
        self._lines.pop(line.number, None)
        if line.channel.is_open:
            line.channel.close()

    def _withhold(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            line = self._lines.get(delivery.line)
            if line is None or line.is_ahead:
                self.ack([delivery])
            else:
                self._withheld.setdefault(line.queue, deque()).append(delivery)

    def _release_withheld(self, messages: int) -> None:
        for withheld in self._withheld.values():
            self.ack([withheld.popleft() for _ in range(min(messages, len(withheld)))])
        self._withheld = {queue: withheld for queue, withheld in self._withheld.items() if withheld}

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
        self._close_line(line)
        self._open_line(line.channel.connection, line.queue, line.prefetch)

    def _consumes(self, line: ConsumedQueue, _frame: Any) -> None:
        self._consuming += not line.is_ahead
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
                    len(body),
                )
            )
            if line.is_ahead:
                self._ahead_bytes += len(body)
                if self._ahead_bytes > MOST_AHEAD_BYTES:
                    self._stop_reading_ahead()
            self._on_deliveries()

        return receive

    def _stop_reading_ahead(self) -> None:
        """Take no more messages ahead for a while, because they are larger than those before."""
        self._reads_ahead_from = monotonic() + REST_SECONDS
        for line in self._lines_ahead():
            self._end(line, returns_rest=True)

    def _channel_closed(self, line: ConsumedQueue, channel: Any, reason: Any) -> None:
        is_refused = isinstance(reason, driver().exceptions.ChannelClosedByBroker) and reason.reply_code != NOT_FOUND
        if line.is_asked and is_refused:
            self._unchecked.add(line.queue)
        if not (line.is_closed or self._stopping.is_set() or channel.connection.is_closing):
            self._break_off(f"a channel was closed: {reason}")

    def _cancel(self) -> None:
        for line in self._lines.values():
            if line.channel.is_open and not line.is_ending:
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
                self._forget(line, delivery.size)

    def _lost(self) -> None:
        self._lines, self._withheld, self._ahead_bytes = {}, {}, 0
        self._inbox.clear()
        self._forget_acks()

    def _forget_acks(self) -> None:
        with self._ack_lock:
            self._acks_are_asked = False
        self._acks.clear()

    def _send_acks(self) -> None:
        with self._ack_lock:
            self._acks_are_asked = False
        sizes: dict[int, dict[int, int]] = {}
        while self._acks:
            delivery = self._acks.popleft()
            sizes.setdefault(delivery.line, {})[delivery.tag] = delivery.size
        for number, acked in sizes.items():
            line = self._lines.get(number)
            if line is not None and line.channel.is_open:
                up_to, singly = line.acknowledge(set(acked))
                if up_to is not None:
                    line.channel.basic_ack(up_to, multiple=True)
                for tag in singly:
                    line.channel.basic_ack(tag)
                self._forget(line, sum(acked.values()))

    def _forget(self, line: ConsumedQueue, size: int) -> None:
        """Count messages that are acknowledged or returned."""
        if line.is_ahead:
            self._ahead_bytes -= size
            self._close_if_over(line)
