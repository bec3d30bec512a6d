"""What is at RabbitMQ, for a test to see, to take away and to send again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import pika

from tests.apps.dubbing.workers import PATIENCE_SECONDS

__all__ = ["QUEUES", "Ear", "Letter"]

QUEUES = ("extract_audio", "asr", "translate", "tts", "mux_video", "tts_compensation", "dlq")


class Letter(NamedTuple):
    """A message as it is at the broker."""

    routing_key: str
    properties: Any
    body: bytes

    @property
    def message(self) -> Any:
        """What is in it."""
        return json.loads(self.body)


class Ear:
    """An external program that gets a copy of every message."""

    def __init__(self, url: str) -> None:
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0  # it is silent while a test waits for something else
        parameters.socket_timeout = parameters.stack_timeout = PATIENCE_SECONDS
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()
        self._channel.exchange_declare("task_exchange", "topic", durable=True)
        self.queue = self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.queue_bind(self.queue, "task_exchange", routing_key="#")

    def heard(self) -> list[tuple[str, Any]]:
        """Routing key and body of all messages since the last time."""
        found = []
        while (got := self._channel.basic_get(self.queue, auto_ack=True))[0] is not None:
            found.append((got[0].routing_key, json.loads(got[2])))
        return found

    def heard_until(self, *routing_keys: str) -> dict[str, Any]:
        """The last message of each routing key, once there is one of each of these."""
        found: dict[str, Any] = {}
        for _ in range(PATIENCE_SECONDS * 20):
            found |= dict(self.heard())
            if found.keys() >= set(routing_keys):
                return found
            self._connection.process_data_events(0.05)
        raise AssertionError(f"not all of {routing_keys} were published to, only {sorted(found)}")

    def all_of(self, routing_key: str, number: int) -> list[Any]:
        """The bodies of all messages with this routing key, once there are so many; others are passed over."""
        found: list[Any] = []
        for _ in range(PATIENCE_SECONDS * 20):
            found += [body for key, body in self.heard() if key == routing_key]
            if len(found) >= number:
                return found
            self._connection.process_data_events(0.05)
        raise AssertionError(f"{len(found)} of {number} messages were published to {routing_key}")

    def taken(self, queue: str, number: int) -> list[Letter]:
        """So many messages taken out of a queue, as they are."""
        found: list[Letter] = []
        while len(found) < number:
            method, properties, body = self._channel.basic_get(queue, auto_ack=True)
            if method is None:
                self._connection.process_data_events(0.05)
            else:
                found.append(Letter(method.routing_key, properties, body))
        return found

    def send(self, letters: Iterable[Letter]) -> None:
        """Publish messages that somebody else published before; copies of them are not heard."""
        self._channel.queue_unbind(self.queue, "task_exchange", routing_key="#")
        for letter in letters:
            self._channel.basic_publish("task_exchange", letter.routing_key, letter.body, letter.properties)
        self._channel.queue_bind(self.queue, "task_exchange", routing_key="#")

    def waiting(self) -> dict[str, int]:
        """How many messages each queue has."""
        return {name: self._channel.queue_declare(f"task.{name}", passive=True).method.message_count for name in QUEUES}

    def close(self) -> None:
        self._connection.close()
