"""Dramatiq on Redis or RabbitMQ, whichever the address names, with its default threads."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend

from benchmarks.kit.contender import LONG_SECONDS, NAP_SECONDS, PADDING, RATE, Cannot, Contender, is_worker, program
from benchmarks.kit.ledger import note
from benchmarks.kit.protocol import URL_VARIABLE

QUEUE = "default"
THREADS = 8
"""Its default."""


def _broker(url: str) -> Any:
    if url.startswith("amqp"):
        return RabbitmqBroker(url=url, confirm_delivery=True)
    return RedisBroker(url=url)


broker = _broker(os.environ.get(URL_VARIABLE, ""))
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="noop")
def noop(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


@dramatiq.actor(actor_name="nap")
def nap(number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    time.sleep(NAP_SECONDS)


@dramatiq.actor(actor_name="long")
def long(number: int, padding: str) -> None:
    """Sleep for seconds."""
    note(number)
    time.sleep(LONG_SECONDS)


@dramatiq.actor(actor_name="keyed")
def keyed(number: int, padding: str, key: int) -> None:
    """Do nothing, one at a time per key; a job that finds its key taken is retried."""
    with ConcurrentRateLimiter(_limits(), f"key-{key}", limit=1).acquire():
        note(number)


@dramatiq.actor(actor_name="rated", max_retries=None)
def rated(number: int, padding: str) -> None:
    """Do nothing, a few times a second; a job that comes too early is retried."""
    with WindowRateLimiter(_limits(), "rated", limit=RATE, window=1).acquire():
        note(number)


if not is_worker():

    @dramatiq.actor(actor_name="unknown")
    def unknown(padding: str) -> None:
        """Never run."""


@functools.cache
def _limits() -> RedisBackend:
    return RedisBackend(url=os.environ[URL_VARIABLE])


class DramatiqContender(Contender):
    """Its broker's queue, processed by `dramatiq`."""

    packages = ("dramatiq", "redis", "pika")
    fate_of_unknown = "dead-lettered at once"
    has_bulk = False

    def settings(self) -> Mapping[str, str]:
        """The configuration and promises, for the report."""
        return {
            "worker": f"dramatiq --processes PROCESSES --threads {THREADS}; for sleeping jobs --threads 100",
            "broker": "RabbitMQ: durable classic queue, persistent messages, confirm_delivery. "
            "Redis: its append-only file",
            "promise": "at least once; results are not stored, ended jobs are forgotten",
        }

    def prepare(self) -> None:
        """Do nothing: it declares its queue itself."""

    def open(self) -> None:
        """Declare the queue."""
        if isinstance(broker, RabbitmqBroker):
            broker.declare_queue(QUEUE, ensure=True)

    def close(self) -> None:
        """Disconnect."""
        broker.close()

    def enqueue(self, number: int) -> None:
        """Send one message."""
        noop.send(number, PADDING)

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Send them one by one; there is no other way."""
        for number in numbers:
            nap.send(number, PADDING)

    def enqueue_long(self, numbers: Sequence[int]) -> None:
        """Send them one by one."""
        for number in numbers:
            long.send(number, PADDING)

    def enqueue_keyed(self, numbers: Sequence[int], *, keys: int) -> None:
        """Send them one by one; a limiter per key in Redis holds the limit."""
        _demand_redis()
        for number in numbers:
            keyed.send(number, PADDING, number % keys)

    def enqueue_rated(self, numbers: Sequence[int]) -> None:
        """Send them one by one; a limiter in Redis holds the rate."""
        _demand_redis()
        for number in numbers:
            rated.send(number, PADDING)

    def enqueue_unknown(self, jobs: int) -> None:
        """Send them one by one."""
        for _ in range(jobs):
            unknown.send(PADDING)

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One master that keeps so many processes."""
        options = ["--processes", str(processes), "--threads", str(concurrency or THREADS)]
        return [[program("dramatiq"), "benchmarks.contenders.dramatiq", *options]]

    def left(self) -> int:
        """Messages that wait or, on Redis, are taken and not acknowledged."""
        if isinstance(broker, RabbitmqBroker):
            waiting, delayed, dead = broker.get_queue_message_counts(QUEUE)
            return int(waiting + delayed + dead)
        names = (f"{broker.namespace}:{name}.msgs" for name in (QUEUE, f"{QUEUE}.DQ"))  # DQ: to be tried later
        return int(sum(broker.client.hlen(name) for name in names))


def _demand_redis() -> None:
    if isinstance(broker, RabbitmqBroker):
        raise Cannot("its limiters need Redis or Memcached beside RabbitMQ")


CONTENDER = DramatiqContender
