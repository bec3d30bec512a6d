"""Consumers at a broker that forgets them without notice."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from stagepost.model.identity import new_id
from stagepost.transport.rabbitmq import broker_thread
from stagepost.transport.rabbitmq import consumer as consumer_module
from stagepost.transport.rabbitmq.address import parameters_of
from stagepost.transport.rabbitmq.consumed_queue import Delivery
from stagepost.transport.rabbitmq.consumer import Consumer
from tests.acceptance.remote import until

NEVER = 300.0
"""Seconds that no test lasts."""


class Queue:
    """A queue, as those see it who make and delete it."""

    def __init__(self, url: str) -> None:
        self.name = f"t{new_id()[-12:]}"
        self.made = 0
        self._url = url
        self._connection = pika.BlockingConnection(parameters_of(url))
        self._channel = self._connection.channel()

    def prepare(self) -> None:
        """As a consumer does before it connects."""
        with contextlib.closing(pika.BlockingConnection(parameters_of(self._url))) as connection:
            connection.channel().queue_declare(self.name, durable=True, arguments={"x-queue-type": "quorum"})
        self.made += 1

    def make(self) -> None:
        self._channel.queue_declare(self.name, durable=True, arguments={"x-queue-type": "quorum"})

    def delete(self) -> None:
        self._channel.queue_delete(self.name)

    def put(self, *bodies: bytes) -> None:
        with contextlib.closing(pika.BlockingConnection(parameters_of(self._url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", self.name, body, pika.BasicProperties(delivery_mode=2), mandatory=True)

    @contextlib.contextmanager
    def somebodys_own(self) -> Iterator[str]:
        """Make a queue that nobody else may look at."""
        with contextlib.closing(pika.BlockingConnection(parameters_of(self._url))) as connection:
            yield connection.channel().queue_declare("", exclusive=True).method.queue

    @property
    def consumers(self) -> int:
        return int(self._channel.queue_declare(self.name, passive=True).method.consumer_count)

    def close(self) -> None:
        self.delete()
        self._connection.close()


@pytest.fixture
def queue(broker_url: str) -> Iterator[Queue]:
    queue = Queue(broker_url)
    queue.make()
    yield queue
    queue.close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "CHECK_SECONDS", 0.1)


@pytest.fixture
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the broker think that consumers do not want to know when their queue is deleted."""

    def deaf(url: str) -> Any:
        parameters = parameters_of(url)
        parameters.client_properties |= {"capabilities": {"consumer_cancel_notify": False, "basic.nack": True}}
        return parameters

    monkeypatch.setattr(broker_thread, "parameters_of", deaf)


@contextlib.contextmanager
def consuming(url: str, queue: Queue, *, prefetch: int = 10) -> Iterator[Consumer]:
    consumer = Consumer(url, {queue.name: prefetch}, name="consume", prepare=queue.prepare, on_deliveries=lambda: None)
    consumer.start()
    try:
        until(lambda: consumer.trouble is None, "it to consume")
        yield consumer
    finally:
        consumer.stop()


def taken(consumer: Consumer, number: int) -> list[Delivery]:
    found: list[Delivery] = []

    def look() -> bool:
        found.extend(consumer.take(100))
        return len(found) >= number

    until(look, f"{number} messages")
    return found


def reads_ahead(consumer: Consumer) -> bool:
    return any(line.is_ahead and not line.is_cancelled for line in tuple(consumer._lines.values()))


def checks(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """How often the broker has said how the queue stands, from now on."""
    answers: list[None] = []
    checked = consumer._checked

    def noted(line: Any, frame: Any) -> None:
        if frame.method.consumer_count == 0:  # what RabbitMQ says of a queue that does not tell it within 250 ms
            consumer._check_later(line)
            return
        answers.append(None)
        checked(line, frame)

    monkeypatch.setattr(consumer, "_checked", noted)
    return answers


@pytest.mark.usefixtures("_untold")
def test_a_queue_deleted_without_notice_is_recreated(broker_url: str, queue: Queue) -> None:
    with consuming(broker_url, queue):
        queue.delete()
        until(lambda: queue.made >= 2, "it to be made anew")
        until(lambda: queue.consumers == 1, "it to be consumed")


def test_a_consumer_that_receives_nothing_notices_that_messages_wait(
    broker_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In RabbitMQ 3.10, a quorum queue that is recreated at once assigns messages to consumers that never get them."""
    with consuming(broker_url, queue, prefetch=1) as consumer:
        queue.delete()
        queue.make()
        queue.put(b"1", b"2")

        [first] = taken(consumer, 1)
        monkeypatch.setattr(consumer_module, "CHECK_SECONDS", NEVER)  # it has noticed, and keeps what it has
        consumer.ack([first])
        [second] = taken(consumer, 1)

    assert {first.body, second.body} == {b"1", b"2"}
    assert queue.made >= 2


def test_a_long_idle_consumer_opens_a_new_channel_and_receives_withheld_messages(
    broker_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "IDLE_CHECKS", 3)
    with consuming(broker_url, queue) as consumer:
        queue.delete()
        queue.make()
        queue.put(b"1")
        held = taken(consumer, 1)
        assert [one.body for one in held] == [b"1"]
        made = queue.made
        position = consumer.position(queue.name)
        answers = checks(consumer, monkeypatch)
        until(lambda: len(answers) >= 6, "the broker to be asked while a message is held")
        assert consumer.position(queue.name) == position, "a message that is held was given up"
        consumer.ack(held)
        until(lambda: consumer.position(queue.name) != position, "another channel")
        monkeypatch.setattr(consumer_module, "CHECK_SECONDS", NEVER)  # a broker that is slow is not what is meant

        queue.put(b"2")
        assert [one.body for one in taken(consumer, 1)] == [b"2"]
        assert queue.made == made, "it has connected again"


def until_one_of(number: int, consumer: Consumer) -> None:
    """Wait for a message of a queue's life; those of earlier ones may have come before it ended."""

    def look() -> bool:
        found = consumer.take(100)
        consumer.ack(one for one in found if not one.body.startswith(b"%d." % number))
        return any(one.body.startswith(b"%d." % number) for one in found)

    until(look, f"a message of life {number}")


def test_many_consumers_resume_whether_or_not_they_are_notified(broker_url: str, queue: Queue) -> None:
    with contextlib.ExitStack() as stack:
        consumers = [stack.enter_context(consuming(broker_url, queue, prefetch=1)) for _ in range(4)]
        for number in range(3):
            queue.delete()
            queue.make()
            queue.put(*(b"%d.%d" % (number, message) for message in range(8)))
            for consumer in consumers:
                until_one_of(number, consumer)
            for consumer in consumers:
                consumer.reconnect("the test wants it empty-handed")


def check_now(consumer: Consumer) -> None:
    """Let it look whether it should ask how its queue stands."""
    [line] = consumer._lines.values()
    has_looked = threading.Event()

    def look() -> None:
        consumer._check(line)
        has_looked.set()

    assert consumer._later(look)
    assert has_looked.wait(60)


def test_a_consumer_that_rightly_receives_nothing_is_left_alone(
    broker_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consuming(broker_url, queue, prefetch=2) as full, consuming(broker_url, queue, prefetch=2) as idle:
        looks = [checks(consumer, monkeypatch) for consumer in (full, idle)]
        until(lambda: min(map(len, looks)) >= 4, "the broker to be asked while the queue is empty")
        monkeypatch.setattr(consumer_module, "CHECK_SECONDS", NEVER)  # a broker that is slow here is not what is meant
        queue.put(*(b"%d" % number for number in range(8)))
        taken(full, 2)
        held = taken(idle, 2)
        for consumer in (full, idle, full, idle):
            check_now(consumer)
        idle.ack(held)
        taken(idle, 2)

        assert queue.made == 2


def test_a_broker_that_does_not_report_queue_lengths_is_not_asked_again(
    broker_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refusal ends the channel, so that asking again and again would end every connection."""
    with consuming(broker_url, queue) as consumer, queue.somebodys_own() as locked:
        [line] = consumer._lines.values()
        monkeypatch.setattr(line, "queue", locked)
        until(lambda: queue.made >= 2, "the connection to end")
        until(lambda: consumer.trouble is None, "it to consume")
        queue.put(b"1")

        assert [one.body for one in taken(consumer, 1)] == [b"1"]
        assert consumer._unchecked == {locked}


def test_a_broker_that_disconnects_during_a_check_is_asked_again(broker_url: str, queue: Queue) -> None:
    with consuming(broker_url, queue) as consumer:
        [line] = consumer._lines.values()
        line.is_asked = True
        consumer._channel_closed(line, line.channel, pika.exceptions.ConnectionClosedByBroker(320, "CONNECTION_FORCED"))

        assert consumer._unchecked == set()


def test_messages_are_read_ahead_until_that_is_stopped_and_none_is_delivered_twice(
    broker_url: str, queue: Queue
) -> None:
    queue.put(*(b"%d" % number for number in range(30)))
    with consuming(broker_url, queue, prefetch=2) as consumer:
        found = taken(consumer, 2)
        consumer.read_ahead(queue.name, 5)
        found += taken(consumer, 5)
        until(lambda: queue.consumers == 2, "both consumers")
        consumer.read_ahead(queue.name, 20)
        found += taken(consumer, 15)
        consumer.read_ahead(queue.name, 0)
        until(lambda: not reads_ahead(consumer), "it to stop that")
        consumer.ack(found)
        while len(found) < 30:
            found += (more := taken(consumer, 1))
            consumer.ack(more)
        until(lambda: queue.consumers == len(consumer._lines) == 1, "the additional channels to be closed")

    assert sorted(int(delivery.body) for delivery in found) == list(range(30))
    assert not any(delivery.redelivered for delivery in found)


def test_no_message_takes_the_place_of_a_withheld_one(broker_url: str, queue: Queue) -> None:
    queue.put(b"1", b"2", b"3", b"4")
    with consuming(broker_url, queue, prefetch=2) as consumer:
        consumer.withhold(taken(consumer, 2))
        until(lambda: bool(consumer._withheld), "it to withhold them")
        assert not consumer.has_more

        consumer.make_room(1)
        [third] = taken(consumer, 1)
        consumer.ack([third])
        [fourth] = taken(consumer, 1)

        assert (third.body, fourth.body) == (b"3", b"4")
        assert consumer._lines[fourth.line].held == 2


def test_messages_that_are_too_large_to_be_read_ahead_stay_at_the_broker(
    broker_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "MOST_AHEAD_BYTES", 2000)
    with consuming(broker_url, queue, prefetch=1) as consumer:
        consumer.read_ahead(queue.name, 20)
        until(lambda: queue.consumers == 2, "both consumers")
        queue.put(*(b"%1000d" % number for number in range(20)))
        found = taken(consumer, 1)
        until(lambda: not reads_ahead(consumer), "the additional consumer to be cancelled")
        found += consumer.take(20)
        assert len(found) <= 1 + 3
        consumer.read_ahead(queue.name, 20)
        consumer.ack(found)
        while len(found) < 20:
            found += (more := taken(consumer, 1))
            assert len(more) == 1
            consumer.ack(more)

    assert sorted(int(delivery.body) for delivery in found) == list(range(20))
