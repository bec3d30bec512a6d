"""Publishes messages and says of each whether the broker has it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from enum import StrEnum
from itertools import takewhile
from typing import Any

from stagepost.model.envelope import Message
from stagepost.transport.rabbitmq.address import driver
from stagepost.transport.rabbitmq.broker_thread import BrokerThread

__all__ = ["Publisher", "Verdict"]

log = logging.getLogger(__name__)

PERSISTENT = 2


class Verdict(StrEnum):
    """What became of a message."""

    CONFIRMED = "confirmed"
    """The broker has it, on disk."""
    RETURNED = "returned"
    """No queue is bound for it, or it cannot be written as a message at all."""
    REFUSED = "refused"
    """The broker would not take it: its queue is full."""
    UNKNOWN = "unknown"
    """No answer came in time: it may be there or not."""


class PublishGroup:
    """Messages on their way, and what is known of them so far."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.verdicts: list[Verdict | None] = [None] * len(messages)
        self.places = {message.message_id: place for place, message in enumerate(messages)}
        self.left = len(messages)
        self.future: Future[list[Verdict]] = Future()
        self.deadline: Any = None

    def decide(self, place: int, verdict: Verdict) -> None:
        """Note a verdict; a message that was returned is confirmed afterwards, which changes nothing."""
        if self.verdicts[place] is None:
            self.verdicts[place] = verdict

    def settle(self, place: int, verdict: Verdict) -> None:
        """Note the last word on a message."""
        self.decide(place, verdict)
        self.left -= 1
        if not self.left:
            self.finish()

    def finish(self) -> None:
        """Give what is known to whoever waits."""
        with contextlib.suppress(InvalidStateError):  # it has been told, or does not wait any more
            self.future.set_result([verdict or Verdict.UNKNOWN for verdict in self.verdicts])


class Publisher(BrokerThread):
    """Publishes persistent messages with `mandatory` and confirms, many in flight."""

    def __init__(self, url: str, *, exchange: str, timeout: float, prepare: Callable[[], None] = lambda: None) -> None:
        super().__init__(url, name="stagepost-publish", prepare=prepare)
        self._exchange = exchange
        self._timeout = timeout
        self._channel: Any = None
        self._tag = 0
        self._pending: dict[int, tuple[PublishGroup, int]] = {}
        self._batch: PublishGroup | None = None
        self._asked: set[PublishGroup] = set()
        """All that somebody waits for, sent or not: each gets its answer when the connection is lost."""
        self.is_blocked = False
        """The broker takes no messages at the moment: it is short of memory or disk."""

    def publish(self, messages: Sequence[Message]) -> Future[list[Verdict]]:
        """Publish messages in their order; the future has a verdict for each, no later than the deadline.

        One batch at a time. What was not confirmed may have arrived all the same.
        """
        batch = PublishGroup(messages)
        self._asked.add(batch)  # before the loop is asked, which may be ending
        batch.future.add_done_callback(lambda _: self._asked.discard(batch))
        if not messages or not self._later(lambda: self._send(batch)):
            batch.finish()
        return batch.future

    def _opened(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._blocked)
        connection.add_on_connection_unblocked_callback(self._unblocked)
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._ready(channel))

    def _ready(self, channel: Any) -> None:
        self._channel, self._tag = channel, 0
        self._works()

    def _channel_closed(self, channel: Any, reason: object) -> None:
        self._channel = None
        if not self._stopping.is_set() and not channel.connection.is_closing:
            self._break_off(f"the channel was closed: {reason}")

    def _lost(self) -> None:
        self._channel, self.is_blocked, self._batch = None, False, None
        self._pending.clear()
        for batch in list(self._asked):
            batch.finish()

    def _send(self, batch: PublishGroup) -> None:
        if self._channel is None or self.is_blocked or self._why is not None:
            batch.finish()
            return
        self._batch = batch
        impossible = _impossible()
        with self._connection.joined():
            for place, message in enumerate(batch.messages):
                self._tag += 1
                self._pending[self._tag] = batch, place
                try:
                    self._put(message)
                except impossible:
                    del self._pending[self._tag]
                    self._tag -= 1
                    batch.settle(place, Verdict.RETURNED)
        batch.deadline = self._connection.ioloop.call_later(self._timeout, lambda: self._give_up(batch))

    def _put(self, message: Message) -> None:
        self._channel.basic_publish(
            self._exchange,
            message.routing_key,
            message.body,
            driver().BasicProperties(
                content_type="application/json",
                delivery_mode=PERSISTENT,
                message_id=message.message_id,
                correlation_id=message.correlation_id,
                headers=dict(message.headers),
                priority=message.priority,
            ),
            mandatory=True,
        )

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        verdict = Verdict.CONFIRMED if type(method).__name__ == "Ack" else Verdict.REFUSED
        tag = method.delivery_tag
        tags = list(takewhile(lambda known: known <= tag, self._pending)) if method.multiple else [tag]
        for known in tags:
            if (found := self._pending.pop(known, None)) is not None:
                batch, place = found
                batch.settle(place, verdict)
                if not batch.left and batch.deadline is not None:
                    self._connection.ioloop.remove_timeout(batch.deadline)  # it would keep the messages until then
                    batch.deadline = None

    def _returned(self, _channel: Any, _method: Any, properties: Any, _body: bytes) -> None:
        batch = self._batch
        if batch is not None and (place := batch.places.get(properties.message_id)) is not None:
            batch.decide(place, Verdict.RETURNED)  # its confirm follows

    def _give_up(self, batch: PublishGroup) -> None:
        batch.deadline = None
        if batch.future.done():
            return
        batch.finish()
        if not self.is_blocked:  # a broker that takes nothing at the moment will go on with this connection
            self._break_off(f"{batch.left} of {len(batch.messages)} messages were not confirmed in {self._timeout:g} s")

    def _blocked(self, _connection: Any, frame: Any) -> None:
        self.is_blocked = True
        self.trouble = f"the broker takes no messages: {getattr(frame.method, 'reason', 'it is blocked')}"
        log.warning("%s; jobs wait in the database meanwhile", self.trouble)

    def _unblocked(self, _connection: Any, _frame: Any) -> None:
        self.is_blocked, self.trouble = False, None
        log.info("the broker takes messages again")


def _impossible() -> tuple[type[Exception], ...]:
    """What the driver raises for a message that it cannot write, such as one whose routing key is too long."""
    errors = driver().exceptions
    return errors.ShortStringTooLong, errors.UnsupportedAMQPFieldException, UnicodeError
