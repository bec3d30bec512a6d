"""A private RabbitMQ for fault tests; each test uses different names on it."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pika

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.model.envelope import Message, request_for
from stagepost.model.identity import new_id
from stagepost.transport.rabbitmq.address import parameters_of
from tests.fault.arena import Arena
from tests.fault.proxy import FaultProxy
from tests.services.processes import ServerFailed, wait_until
from tests.services.rabbitmq import RabbitmqInstance

URL_VARIABLE = "STAGEPOST_FAULT_RABBITMQ_URL"
"""Names a private node that a run inside a run may use."""
RESENT = re.compile(r"(\d+) jobs are sent again")
QUICK = {
    "rabbitmq_prefetch": 4,
    "rabbitmq_lost_after_seconds": 10,
    "rabbitmq_unroutable_timeout_seconds": 120,
    "rabbitmq_confirm_timeout_seconds": 20,
}
"""So long may a message be missing that those with a worker on a busy machine are not taken for lost."""
RESENDING: dict[str, Any] = {"rabbitmq_lost_after_seconds": 2.5}
"""Where messages do get lost."""


class PrivateRabbitmq(RabbitmqInstance):
    """A node that a test may stop, kill, wipe and restart on the same port."""

    def restart_app(self) -> None:
        """Stop the broker inside its node, and start it again."""
        self.control("stop_app")
        wait_until(self._starts_app, "the broker to start again", seconds=180)

    def _starts_app(self) -> bool:
        try:
            self.control("start_app")
        except ServerFailed as error:
            if "eaddrinuse" in str(error):
                return False  # somebody who tries to connect has its port for a moment, by chance
            raise
        return True

    def wipe(self) -> None:
        """Kill it, remove all that it had on disk, and start it again."""
        self.kill()
        shutil.rmtree(self.directory / "mnesia")
        self.start()


class Names:
    """One test's exchange and queues on a broker."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.settings = RabbitmqSettings(prefix=f"t{new_id()[-12:]}")

    def carry(self, arena: Arena, *, url: str | None = None, **changes: Any) -> None:
        """Let all workers of an arena use the broker, perhaps through a proxy."""
        prefix = {"rabbitmq_prefix": f"{self.settings.prefix}"}
        arena.settings = {"transport": url or self.url, **prefix, **QUICK, **changes}

    def proxy(self) -> FaultProxy:
        """Something to put between workers and the broker."""
        parts = urlsplit(self.url)
        return FaultProxy(str(parts.hostname), int(parts.port or 0))

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        with contextlib.closing(pika.BlockingConnection(parameters_of(self.url))) as connection:
            yield connection.channel()

    def publish(self, *messages: Message, queue: str = "default") -> None:
        """Put messages into a queue, past the relay."""
        with self.channel() as channel:
            channel.confirm_delivery()
            for message in messages:
                properties = pika.BasicProperties(delivery_mode=2, message_id=message.message_id)
                channel.basic_publish("", self.name(queue), message.body, properties)

    def reject(self, queue: str = "default") -> None:
        """Take the next message of a queue and reject it, as a program might."""
        with self.channel() as channel:
            method, _, _ = channel.basic_get(self.name(queue))
            channel.basic_reject(method.delivery_tag, requeue=False)

    def request(self, job_id: str, *, attempt: int = 1, task: str = "transfer") -> Message:
        return request_for(
            routing_key="", job_id=job_id, task_name=task, attempt=attempt, created_at=0, payload="{}", context=None
        )

    def name(self, queue: str = "default") -> str:
        return self.settings.routing_key(queue)

    def depth(self, queue: str = "default") -> int:
        """How many messages wait in a queue; 0 if it does not exist."""
        with self.channel() as channel, contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
            count: int = channel.queue_declare(self.name(queue), passive=True).method.message_count
            return count
        return 0

    def is_consumed(self, queue: str = "default") -> bool:
        """Whether the queue exists and has a consumer."""
        with self.channel() as channel, contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
            return bool(channel.queue_declare(self.name(queue), passive=True).method.consumer_count)
        return False

    def purge(self, queue: str = "default") -> int:
        """Delete all messages of a queue; returns how many there were."""
        with self.channel() as channel:
            count: int = channel.queue_purge(self.name(queue)).method.message_count
            return count

    def delete(self, queue: str = "default") -> None:
        with self.channel() as channel:
            channel.queue_delete(self.name(queue))

    def unbind(self, queue: str = "default") -> None:
        with self.channel() as channel:
            channel.queue_unbind(self.name(queue), self.settings.exchange_name, self.name(queue))

    def clear(self) -> None:
        """Leave nothing to the next test."""
        with contextlib.suppress(pika.exceptions.AMQPError, OSError), self.channel() as channel:
            for queue in ("default", "results", "dlq"):
                channel.queue_delete(f"{self.settings.prefix}.{queue}")
            channel.exchange_delete(self.settings.exchange_name)


def resent(arena: Arena) -> int:
    """How many jobs were sent again because their message seemed to be lost."""
    return sum(map(int, RESENT.findall(arena.logged())))
