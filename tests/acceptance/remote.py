"""An app with a remote task, workers for it in the background, and an external program that tests control."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypedDict

import pika
import pika.spec

from stagepost import App, AppTask, Worker
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.store.sending import sent_jobs
from stagepost.transport.rabbitmq.address import parameters_of
from stagepost.transport.rabbitmq.topology import topology_of
from stagepost.worker.answers import Counted
from tests.acceptance.helpers import AT_ONCE

SECONDS = 120.0


class Words(TypedDict):
    """What the recognisers among the examples give."""

    text: str
    letters: int


Recognise = AppTask[[str], Words]


def add_recognise(app: App, *, timeout: timedelta | None = None) -> Recognise:
    @app.task(name="recognise", queue="recogniser", remote=True, retry=AT_ONCE, timeout=timeout)
    def recognise(audio_key: str) -> Words:
        raise AssertionError("never run here")

    return recognise


@contextlib.contextmanager
def working(app: App) -> Iterator[Worker]:
    """Run a worker in a thread for the body, and stop it in good order."""
    worker = Worker(app)
    loops: list[asyncio.AbstractEventLoop] = []
    started = threading.Event()

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        started.set()
        await worker.run()

    thread = threading.Thread(target=asyncio.run, args=[run()])
    thread.start()
    started.wait()
    try:
        yield worker
    finally:
        loops[0].call_soon_threadsafe(worker.stop)
        thread.join(SECONDS)
        assert not thread.is_alive()


def is_sent(app: App, number: int) -> bool:
    """Whether so many requests are marked as sent, which may be after somebody took them."""
    return len(app.store.run(sent_jobs("recogniser", older=timedelta(0), most=1000))) == number


def counted(worker: Worker) -> Counted:
    assert worker.parts.broker is not None
    assert worker.parts.broker.answers is not None
    return worker.parts.broker.answers.counted


def resent(worker: Worker) -> int:
    assert worker.parts.broker is not None
    return worker.parts.broker.reconciler.resent


def unanswered(worker: Worker) -> int:
    assert worker.parts.broker is not None
    return worker.parts.broker.reconciler.unanswered


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for another thread or process, which gives no signal to wait on."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {SECONDS:g} s in vain for {what}"
        time.sleep(0.02)


class Stranger:
    """An external program that takes requests and answers just as a test wants it to."""

    def __init__(self, url: str, settings: RabbitmqSettings) -> None:
        self._url = url
        self._settings = settings
        self._tags: dict[str, int] = {}
        self._connect()

    def _connect(self) -> None:
        self._connection = pika.BlockingConnection(parameters_of(self._url))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()

    def take(self, number: int = 1) -> list[dict[str, Any]]:
        """Take requests, and hold them."""
        taken: list[dict[str, Any]] = []

        def look() -> bool:
            try:
                method, _, body = self._channel.basic_get(self._settings.routing_key("recogniser"))
            except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker):
                if self._tags:
                    raise
                self.close()  # the queue is not there yet, or is being made
                self._connect()
                return False
            if method is not None:
                taken.append(json.loads(body))
                self._tags[taken[-1]["task_id"]] = method.delivery_tag
            return len(taken) == number

        until(look, f"{number} requests")
        return taken

    def answer(self, request: dict[str, Any], *, times: int = 1, **facts: Any) -> None:
        """Answer a request so often, and acknowledge it."""
        facts = {"status": "completed", "result": {"text": "so it is", "letters": 8}} | facts
        for _ in range(times):
            self.say({"task_id": request["task_id"], "attempt": request["attempt"]} | facts)
        if (tag := self._tags.pop(request["task_id"], None)) is not None:
            self._channel.basic_ack(tag)

    def swallow(self, request: dict[str, Any]) -> None:
        """Acknowledge a request and never answer it."""
        self._channel.basic_ack(self._tags.pop(request["task_id"]))

    def report(self, request: dict[str, Any]) -> None:
        """Say that a request is being worked on."""
        named = {"task_id": request["task_id"], "attempt": request["attempt"]}
        self.say({**named, "status": "progress", "progress": 0.5})

    def say(self, message: object) -> None:
        """Publish anything as an answer."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self._channel.basic_publish(
            self._settings.exchange_name,
            self._settings.answers,
            body,
            pika.BasicProperties(delivery_mode=2),
            mandatory=True,
        )

    def make_answers_anew(self) -> None:
        """Delete the queue of answers and make it again before anybody hears of it."""
        name = self._settings.answers
        [plan] = [plan for plan in topology_of(self._settings, ["recogniser"]).queues if plan.name == name]
        self._channel.queue_delete(name)
        self._channel.queue_declare(name, durable=True, arguments=dict(plan.arguments))
        self._channel.queue_bind(name, self._settings.exchange_name, routing_key=name)

    def purge(self) -> None:
        """Lose all requests that wait."""
        self._channel.queue_purge(self._settings.routing_key("recogniser"))

    def close(self) -> None:
        """Go away; what it holds goes back to its queue."""
        if self._connection.is_open:
            self._connection.close()
