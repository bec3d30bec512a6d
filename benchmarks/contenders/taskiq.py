"""taskiq on Redis streams or RabbitMQ, whichever the address names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

import aio_pika
import redis
from taskiq import AsyncBroker, AsyncTaskiqDecoratedTask
from taskiq_aio_pika import AioPikaBroker
from taskiq_redis import RedisStreamBroker

from benchmarks.kit.contender import (
    FLOW_VARIABLE,
    LONG_SECONDS,
    NAP_SECONDS,
    PADDING,
    AsyncContender,
    is_worker,
    program,
)
from benchmarks.kit.ledger import note
from benchmarks.kit.protocol import URL_VARIABLE

QUEUE = "taskiq"
CONCURRENCY = 100
"""Its default."""
PREFETCH = 200


def _broker(url: str) -> AsyncBroker:
    if url.startswith("amqp"):
        return AioPikaBroker(url) if os.environ.get(FLOW_VARIABLE) else AioPikaBroker(url, qos=PREFETCH)
    # From the beginning of the stream: by default it would skip what was sent before the first worker.
    return RedisStreamBroker(url or "redis://", queue_name=QUEUE, consumer_id="0")


broker = _broker(os.environ.get(URL_VARIABLE, ""))


@broker.task(task_name="noop")
async def noop(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


@broker.task(task_name="nap")
async def nap(number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    await asyncio.sleep(NAP_SECONDS)


@broker.task(task_name="long")
async def long(number: int, padding: str) -> None:
    """Sleep for seconds."""
    note(number)
    await asyncio.sleep(LONG_SECONDS)


if not is_worker():

    @broker.task(task_name="unknown")
    async def unknown(number: int, padding: str) -> None:
        """Never run."""


class TaskiqContender(AsyncContender):
    """Its broker's queue, processed by `taskiq worker`."""

    fate_of_unknown = "dropped"
    has_bulk = False
    packages = ("taskiq", "taskiq-redis", "taskiq-aio-pika", "redis", "aio-pika", "uvloop")

    def settings(self) -> Mapping[str, str]:
        """The configuration and promises, for the report."""
        return {
            "worker": f"taskiq worker --workers PROCESSES --max-async-tasks {CONCURRENCY}, acknowledges at the end, "
            f"uvloop; on RabbitMQ qos {PREFETCH}",
            "broker": "RabbitMQ: durable queue, persistent messages, publisher confirms. "
            "Redis: a stream with acknowledgement, in its append-only file",
            "promise": "at least once; results are not stored, ended jobs are forgotten",
        }

    def prepare(self) -> None:
        """Declare queue or consumer group."""
        self.run(self._prepare())

    async def open_async(self) -> None:
        """Connect."""
        await broker.startup()
        self._redis = redis.Redis.from_url(self.url) if self.url.startswith("redis") else None
        self._rabbitmq = None if self._redis else await aio_pika.connect(self.url)

    async def close_async(self) -> None:
        """Disconnect."""
        await broker.shutdown()
        if self._redis is not None:
            self._redis.close()
        if self._rabbitmq is not None:
            await self._rabbitmq.close()

    async def enqueue_async(self, number: int) -> None:
        """Send one message."""
        await noop.kiq(number, PADDING)

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Send them one by one; there is no other way."""
        self.run(self._send(nap, numbers))

    def enqueue_long(self, numbers: Sequence[int]) -> None:
        """Send them one by one."""
        self.run(self._send(long, numbers))

    def enqueue_unknown(self, jobs: int) -> None:
        """Send them one by one."""
        self.run(self._send(unknown, range(jobs)))

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One manager that keeps so many processes."""
        options = ["--workers", str(processes), "--max-async-tasks", str(concurrency or CONCURRENCY)]
        worker = [program("taskiq"), "worker", "benchmarks.contenders.taskiq:broker", "--log-level", "WARNING"]
        return [[*worker, *options]]

    def left(self) -> int:
        """Messages that wait or, on Redis, are taken and not acknowledged."""
        if self._redis is not None:
            groups: Any = self._redis.xinfo_groups(QUEUE)
            return int(sum(group["pending"] + (group["lag"] or 0) for group in groups))
        return self.run(self._waiting())

    async def _prepare(self) -> None:
        await broker.startup()
        await broker.shutdown()

    async def _send(self, task: AsyncTaskiqDecoratedTask[[int, str], None], numbers: Sequence[int]) -> None:
        for number in numbers:
            await task.kiq(number, PADDING)

    async def _waiting(self) -> int:
        assert self._rabbitmq is not None
        async with self._rabbitmq.channel() as channel:
            queue = await channel.declare_queue(QUEUE, passive=True)
            return queue.declaration_result.message_count or 0


CONTENDER = TaskiqContender
