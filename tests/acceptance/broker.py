"""An app whose queues RabbitMQ carries, and a listener that receives every published message."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pika

from stagepost import App, Worker
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.model.identity import new_id
from stagepost.transport.rabbitmq.address import parameters_of
from stagepost.transport.rabbitmq.admin import apply, depths
from stagepost.transport.rabbitmq.topology import topology_of
from tests.acceptance.conftest import quick_settings

PATIENCE_SECONDS = 120.0


def carried(database_url: str, broker_url: str, **options: Any) -> App:
    """Create an app with its own names at the broker; even on a slow machine, no message counts as lost."""
    patient = {"lost_after_seconds": 120.0, "confirm_timeout_seconds": 120.0}
    rabbitmq = RabbitmqSettings(**{"prefix": f"t{new_id()[-12:]}", "prefetch": 10, **patient, **options})
    settings = msgspec.structs.replace(quick_settings(database_url), transport=broker_url, rabbitmq=rabbitmq)
    return App(settings=settings)


@dataclass(frozen=True)
class Heard:
    """A message that was published."""

    routing_key: str
    body: bytes
    properties: Any

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Broker:
    """The broker as an external program sees it."""

    def __init__(self, app: App) -> None:
        assert app.settings.transport is not None
        self.url, self.settings = app.settings.transport, app.settings.rabbitmq
        self.exchange = self.settings.exchange_name
        self.topology = topology_of(self.settings, self.settings.carried(app.registry.queues))
        apply(self.url, self.topology)
        self._connection = pika.BlockingConnection(parameters_of(self.url))
        self.channel = self._connection.channel()
        self.ear = self.channel.queue_declare("", exclusive=True).method.queue
        self.channel.queue_bind(self.ear, self.exchange, routing_key="#")
        self._heard: list[Heard] = []

    def publish(self, routing_key: str, body: bytes, **properties: Any) -> None:
        self.channel.basic_publish(self.exchange, routing_key, body, pika.BasicProperties(**properties))

    def make_anew(self, queue: str) -> None:
        """Delete a queue and make it again before anybody hears of it."""
        [plan] = [plan for plan in self.topology.queues if plan.name == queue]
        self.channel.queue_delete(queue)
        self.channel.queue_declare(queue, durable=True, arguments=dict(plan.arguments))
        self.channel.queue_bind(queue, self.exchange, routing_key=queue)

    def heard(self, routing_key: str) -> list[Heard]:
        """All that was published to a routing key so far; the broker may bring it here after it reached its queue."""
        while (got := self.channel.basic_get(self.ear, auto_ack=True))[0] is not None:
            method, properties, body = got
            self._heard.append(Heard(method.routing_key, body, properties))
        return [one for one in self._heard if one.routing_key == routing_key]

    def waiting(self) -> dict[str, int | None]:
        """How many messages nobody has taken, by queue."""
        found = depths(self.url, list(self.topology.queues))
        return {name: None if depth is None else depth.ready for name, depth in found.items()}

    def is_empty(self) -> bool:
        """Whether no queue has messages; unacknowledged ones do not count."""
        return set(self.waiting().values()) == {0}

    def close(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPError):
            self._connection.close()


@contextlib.contextmanager
def listening(app: App) -> Iterator[Broker]:
    """Prepare the broker for an app and hear all that is published."""
    broker = Broker(app)
    try:
        yield broker
    finally:
        broker.close()


@contextlib.asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker in the body; afterwards it ends in order."""
    worker = Worker(app, **options)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, PATIENCE_SECONDS)


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until something is so, and return it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = await asyncio.to_thread(condition)
        if found:
            return found
        assert time.monotonic() < deadline, f"it did not come to be within {PATIENCE_SECONDS:g} s"
        await asyncio.sleep(0.02)
