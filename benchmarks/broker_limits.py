"""The bare limit of RabbitMQ: Stagepost's messages through pika and nothing else, with one client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from itertools import takewhile
from typing import Any

import pika

from benchmarks.kit.contender import PADDING
from benchmarks.kit.processes import cpu_seconds
from benchmarks.measure import Facts, Sizes
from benchmarks.servers import Address
from stagepost.model.envelope import request_for

__all__ = ["LIMITS"]

QUEUE = "limit"
PREFETCH = 2000
ACK_EVERY = 500
MESSAGE = request_for(
    routing_key=QUEUE,
    job_id="01977b1c-5f0a-7000-8000-0123456789ab",
    task_name="benchmarks.contenders.stagepost.noop",
    attempt=1,
    created_at=1_763_262_000_000_000,
    payload=json.dumps({"number": 123456, "padding": PADDING}),
    context=None,
)


class Loop:
    """One connection in this thread, with one channel, until the work on it is done."""

    def __init__(self, url: str, work: Callable[[Any, Loop], None]) -> None:
        self._work = work
        self.connection = pika.SelectConnection(pika.URLParameters(url), on_open_callback=self._opened)

    def run(self) -> None:
        """Work until `done` is called."""
        self.connection.ioloop.start()

    def done(self) -> None:
        """Stop when everything written has been sent."""
        self.connection.add_on_close_callback(lambda *_: self.connection.ioloop.stop())
        self.connection.close()

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=lambda channel: self._work(channel, self))


def _publish_one_by_one(address: Address, sizes: Sizes, kind: str) -> Facts:
    _declare(address.url, kind)
    with closing(pika.BlockingConnection(pika.URLParameters(address.url))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        meter = _Meter(address)
        for _ in range(sizes.singles):
            _put(channel)
        return meter.stop(sizes.singles)


def _publish(address: Address, sizes: Sizes, kind: str) -> Facts:
    """Publish all messages without waiting; done when the last is confirmed."""
    _declare(address.url, kind)
    return _publish_all(address, sizes.jobs)


def _publish_all(address: Address, jobs: int) -> Facts:
    facts: Facts = {}
    pending = dict.fromkeys(range(1, jobs + 1))
    meter = _Meter(address)

    def work(channel: Any, loop: Loop) -> None:
        def publish(_frame: Any) -> None:
            meter.start()
            for _ in range(jobs):
                _put(channel)

        def confirmed(frame: Any) -> None:
            tag = frame.method.delivery_tag
            for known in list(takewhile(lambda number: number <= tag, pending)) if frame.method.multiple else [tag]:
                del pending[known]
            if not pending:
                facts.update(meter.stop(jobs))
                loop.done()

        channel.confirm_delivery(confirmed, callback=publish)

    Loop(address.url, work).run()
    return facts


def _consume(address: Address, sizes: Sizes, kind: str) -> Facts:
    """Consume messages, acknowledging many at once. The clock starts with the first message."""
    _declare(address.url, kind)
    _publish_all(address, sizes.jobs)
    facts: Facts = {}
    meter = _Meter(address)

    def work(channel: Any, loop: Loop) -> None:
        def receive(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
            tag = method.delivery_tag
            if tag == 1:
                meter.start()
            if tag % ACK_EVERY == 0 or tag == sizes.jobs:
                channel.basic_ack(tag, multiple=True)
            if tag == sizes.jobs:
                facts.update(meter.stop(sizes.jobs))
                loop.done()

        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(QUEUE, receive)

    Loop(address.url, work).run()
    return facts


LIMITS: dict[str, Callable[[Address, Sizes, str], Facts]] = {
    "enqueue_one": _publish_one_by_one,
    "enqueue_bulk": _publish,
    "drain_1": _consume,
}
"""By figure; the last argument is the queue's type."""


class _Meter:
    def __init__(self, address: Address) -> None:
        self._pids = address.server_pids
        self.start()

    def start(self) -> None:
        self._server, self._client, self._began_at = cpu_seconds(self._pids), time.process_time(), time.monotonic()

    def stop(self, jobs: int) -> Facts:
        return {
            "count": jobs,
            "seconds": time.monotonic() - self._began_at,
            "worker_cpu_seconds": time.process_time() - self._client,
            "server_cpu_seconds": cpu_seconds(self._pids) - self._server,
            "ledger": "exact",
        }


def _put(channel: Any) -> None:
    properties = pika.BasicProperties(
        content_type="application/json",
        delivery_mode=2,
        message_id=MESSAGE.message_id,
        correlation_id=MESSAGE.correlation_id,
        headers=dict(MESSAGE.headers),
    )
    channel.basic_publish("", QUEUE, MESSAGE.body, properties, mandatory=True)


def _declare(url: str, kind: str) -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": kind})
        channel.queue_purge(QUEUE)
