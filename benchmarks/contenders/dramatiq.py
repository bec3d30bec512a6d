"""Dramatiq on Redis or RabbitMQ, whichever the address names, with its default threads."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker

from benchmarks.kit.contender import NAP_SECONDS, PADDING, Contender, program
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


class DramatiqContender(Contender):
    """Its broker's queue, worked off by `dramatiq`."""

    packages = ("dramatiq", "redis", "pika")

    def settings(self) -> Mapping[str, str]:
        """How it is run."""
        return {
            "worker": f"dramatiq --processes PROCESSES --threads {THREADS}; for sleeping jobs --threads 100",
            "broker": "RabbitMQ: durable classic queue, persistent messages, confirm_delivery. "
            "Redis: its append-only file",
            "promise": "at least once; results are not stored, ended jobs are forgotten",
        }

    def prepare(self) -> None:
        """Nothing: it declares its queue itself."""

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

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One master that keeps so many processes."""
        options = ["--processes", str(processes), "--threads", str(concurrency or THREADS)]
        return [[program("dramatiq"), "benchmarks.contenders.dramatiq", *options]]

    def left(self) -> int:
        """Messages that wait or, on Redis, are taken and not acknowledged."""
        if isinstance(broker, RabbitmqBroker):
            waiting, delayed, dead = broker.get_queue_message_counts(QUEUE)
            return int(waiting + delayed + dead)
        return int(broker.client.hlen(f"{broker.namespace}:{QUEUE}.msgs"))


CONTENDER = DramatiqContender
