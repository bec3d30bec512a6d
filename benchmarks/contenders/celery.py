"""Celery on Redis or RabbitMQ, whichever the address names: prefork, late acknowledgement, persistent messages."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery

from benchmarks.kit.contender import (
    FLOW_VARIABLE,
    LONG_SECONDS,
    NAP_SECONDS,
    PADDING,
    RATE,
    Contender,
    is_worker,
    program,
)
from benchmarks.kit.ledger import note
from benchmarks.kit.protocol import URL_VARIABLE, VARIANT_VARIABLE

QUEUE = "celery"
IS_THREADED = os.environ.get(VARIANT_VARIABLE) == "threads"
THREADS = 4
PREFETCH_MULTIPLIER = 128
"""Its guide's upper suggestion for many short tasks."""

app = Celery("bench", broker=os.environ.get(URL_VARIABLE))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)
if not os.environ.get(FLOW_VARIABLE):
    app.conf.worker_prefetch_multiplier = PREFETCH_MULTIPLIER
if os.environ.get(URL_VARIABLE, "").startswith("amqp"):
    app.conf.broker_transport_options = {"confirm_publish": True}


@app.task(name="noop")
def noop(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


@app.task(name="nap")
def nap(number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    time.sleep(NAP_SECONDS)


@app.task(name="long")
def long(number: int, padding: str) -> None:
    """Sleep for seconds."""
    note(number)
    time.sleep(LONG_SECONDS)


@app.task(name="rated", rate_limit=f"{RATE}/s")
def rated(number: int, padding: str) -> None:
    """Do nothing, a few times a second per worker."""
    note(number)


if not is_worker():

    @app.task(name="unknown")
    def unknown(padding: str) -> None:
        """Never run."""


def _worker(pool: str, size: int, *more: str) -> list[str]:
    worker = [program("celery"), "--app", "benchmarks.contenders.celery", "worker", "--loglevel", "WARNING"]
    return [*worker, "--pool", pool, "--concurrency", str(size), *more]


class CeleryContender(Contender):
    """Its broker's queue, processed by `celery worker`."""

    packages = ("celery", "kombu", "redis", "amqp")
    fate_of_unknown = "dropped"
    has_bulk = False

    def settings(self) -> Mapping[str, str]:
        """The configuration and promises, for the report."""
        return {
            "worker": f"celery worker --pool {'threads' if IS_THREADED else 'prefork'} --concurrency "
            f"{THREADS if IS_THREADED else 'PROCESSES'}, prefetch multiplier "
            f"{PREFETCH_MULTIPLIER}, acks_late; for sleeping jobs --pool threads --concurrency 100",
            "broker": "RabbitMQ: durable classic queue, persistent messages, publisher confirms. "
            "Redis: its append-only file",
            "promise": "at least once with acks_late; results are not stored, ended jobs are forgotten",
        }

    def prepare(self) -> None:
        """Do nothing: it declares its queue itself."""

    def open(self) -> None:
        """Connect and declare the queue."""
        self._connection = app.connection_for_write()
        app.amqp.queues[QUEUE](self._connection.default_channel).declare()

    def close(self) -> None:
        """Disconnect."""
        self._connection.release()

    def enqueue(self, number: int) -> None:
        """Send one message."""
        noop.delay(number, PADDING)

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Send them one by one; there is no other way."""
        for number in numbers:
            nap.delay(number, PADDING)

    def enqueue_long(self, numbers: Sequence[int]) -> None:
        """Send them one by one."""
        for number in numbers:
            long.delay(number, PADDING)

    def enqueue_rated(self, numbers: Sequence[int]) -> None:
        """Send them one by one; each worker keeps the rate for itself."""
        for number in numbers:
            rated.delay(number, PADDING)

    def enqueue_unknown(self, jobs: int) -> None:
        """Send them one by one."""
        for _ in range(jobs):
            unknown.delay(PADDING)

    def flow_commands(self, *, workers: int, slots: int) -> list[list[str]]:
        """Workers with threads; the prefetch multiplier is its own."""
        return [_worker("threads", slots, "--hostname", f"worker{number}@%h") for number in range(workers)]

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One worker whose pool has so many processes, or threads where asked for or for jobs that sleep."""
        if concurrency is not None:
            return [_worker("threads", concurrency)]
        if not IS_THREADED:
            return [_worker("prefork", processes)]
        return [_worker("threads", THREADS, "--hostname", f"worker{number}@%h") for number in range(processes)]

    def left(self) -> int:
        """Messages that wait or, on Redis, are taken and not acknowledged."""
        channel: Any = self._connection.default_channel
        if self.url.startswith("redis"):
            return int(channel.client.llen(QUEUE) + channel.client.hlen(channel.unacked_key))
        return int(channel.queue_declare(QUEUE, passive=True).message_count)


CONTENDER = CeleryContender
