"""Publishes messages and reports for each whether the broker has stored it."""

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
    """The result of publishing one message."""

    CONFIRMED = "confirmed"
    """The broker has stored it on disk."""
    RETURNED = "returned"
    """No queue is bound to its routing key, or it cannot be encoded as a message at all."""
    REFUSED = "refused"
    """The broker rejected it because its queue is full."""
    UNKNOWN = "unknown"
    """No answer came in time, so the broker may or may not have it."""


class PublishGroup:
    """Messages that are published together, and their verdicts so far."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.verdicts: list[Verdict | None] = [None] * len(messages)
        self.places = {message.message_id: place for place, message in enumerate(messages)}
        self.left = len(messages)
        self.future: Future[list[Verdict]] = Future()
        self.deadline: Any = None

    def decide(self, place: int, verdict: Verdict) -> None:
        """Record a verdict unless there is one: the broker returns a message first and then confirms it as well."""
        if self.verdicts[place] is None:
            self.verdicts[place] = verdict

    def settle(self, place: int, verdict: Verdict) -> None:
        """Record the broker's last answer about a message."""
        self.decide(place, verdict)
        self.left -= 1
        if not self.left:
            self.finish()

    def finish(self) -> None:
        """Complete the future with the verdicts so far."""
        with contextlib.suppress(InvalidStateError):  # it is complete, or its caller has cancelled it
            self.future.set_result([verdict or Verdict.UNKNOWN for verdict in self.verdicts])


class Publisher(BrokerThread):
    """Publishes persistent messages with `mandatory` and publisher confirms, a group at a time."""

    def __init__(self, url: str, *, exchange: str, timeout: float, prepare: Callable[[], None] = lambda: None) -> None:
        super().__init__(url, name="stagepost-publish", prepare=prepare)
        self._exchange = exchange
        self._timeout = timeout
        self._channel: Any = None
        self._tag = 0
        self._pending: dict[int, tuple[PublishGroup, int]] = {}
        self._group: PublishGroup | None = None
        self._asked: set[PublishGroup] = set()
        """All groups that a caller waits for, sent or not; they are finished when the connection is lost."""
        self.is_blocked = False
        """Whether the broker accepts no messages at the moment, because it is short of memory or disk space."""

    def publish(self, messages: Sequence[Message]) -> Future[list[Verdict]]:
        """Publish messages in order; the future gets a verdict for each, at the latest after the timeout.

        Publish one group at a time. A message that was not confirmed may have arrived nevertheless.
        """
        group = PublishGroup(messages)
        self._asked.add(group)  # before the call below, because the loop may be ending
        group.future.add_done_callback(lambda _: self._asked.discard(group))
        if not messages or not self._later(lambda: self._send(group)):
            group.finish()
        return group.future

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
        self._channel, self.is_blocked, self._group = None, False, None
        self._pending.clear()
        for group in list(self._asked):
            group.finish()

    def _send(self, group: PublishGroup) -> None:
        if self._channel is None or self.is_blocked or self._why is not None:
            group.finish()
            return
        self._group = group
        impossible = _impossible()
        with self._connection.joined():
            for place, message in enumerate(group.messages):
                self._tag += 1
                self._pending[self._tag] = group, place
                try:
                    self._put(message)
                except impossible:
                    del self._pending[self._tag]
                    self._tag -= 1
                    group.settle(place, Verdict.RETURNED)
        group.deadline = self._connection.ioloop.call_later(self._timeout, lambda: self._give_up(group))

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
                group, place = found
                group.settle(place, verdict)
                if not group.left and group.deadline is not None:
                    self._connection.ioloop.remove_timeout(
                        group.deadline
                    )  # otherwise it would keep the messages in memory
                    group.deadline = None

    def _returned(self, _channel: Any, _method: Any, properties: Any, _body: bytes) -> None:
        group = self._group
        if group is not None and (place := group.places.get(properties.message_id)) is not None:
            group.decide(place, Verdict.RETURNED)  # its confirm follows

    def _give_up(self, group: PublishGroup) -> None:
        group.deadline = None
        if group.future.done():
            return
        group.finish()
        if not self.is_blocked:  # a blocked broker uses this connection again later
            self._break_off(f"{group.left} of {len(group.messages)} messages were not confirmed in {self._timeout:g} s")

    def _blocked(self, _connection: Any, frame: Any) -> None:
        self.is_blocked = True
        self.trouble = f"the broker takes no messages: {getattr(frame.method, 'reason', 'it is blocked')}"
        log.warning("%s; jobs wait in the database meanwhile", self.trouble)

    def _unblocked(self, _connection: Any, _frame: Any) -> None:
        self.is_blocked, self.trouble = False, None
        log.info("the broker takes messages again")
        self.on_working()


def _impossible() -> tuple[type[Exception], ...]:
    """Return the driver's errors for a message that it cannot encode, for example if the routing key is too long."""
    errors = driver().exceptions
    return errors.ShortStringTooLong, errors.UnsupportedAMQPFieldException, UnicodeError
