"""Apps and workers that poll once an hour, so that anything they run sooner was due to a wake-up."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from stagepost import App, Settings, Worker
from stagepost.database.migrate import migrate
from stagepost.database.wakeups.postgres import PostgresWakeups
from stagepost.model.job import NewJob
from tests.services.processes import wait_until

HOUR = 3600.0
SOON = 120.0
"""A deadline, not an expectation: far less than an hour, and enough for a busy machine."""


class Signal:
    """Says that a handler ran, on any loop or thread."""

    def __init__(self) -> None:
        self._ran = threading.Event()

    def set(self) -> None:
        self._ran.set()

    async def come(self) -> None:
        assert await asyncio.to_thread(self._ran.wait, SOON), "no wake-up came"
        self._ran.clear()


class Ear:
    """Counts wake-ups, and waits for the next."""

    def __init__(self) -> None:
        self._heard = threading.Semaphore(0)

    def wake(self) -> None:
        self._heard.release()

    def hears(self) -> None:
        assert self._heard.acquire(timeout=SOON), "no wake-up came"

    @property
    def is_quiet(self) -> bool:
        return not self._heard.acquire(blocking=False)


@contextlib.contextmanager
def listening(wakeups: PostgresWakeups) -> Iterator[Ear]:
    ear = Ear()
    wakeups.start(ear.wake)
    try:
        ear.hears()  # of its own start
        yield ear
    finally:
        wakeups.stop()


def app_at(url: str, ran: Callable[[], None] = lambda: None, **settings: Any) -> App:
    given = {"poll_shortest_seconds": HOUR, "poll_longest_seconds": HOUR, **settings}
    app = App(settings=Settings(database_url=url, **given))

    @app.task(name="greet", queue="mail")
    async def greet(name: str) -> None:
        ran()

    return app


def greeting(app: App, name: str = "Ann") -> NewJob:
    return app.registry.get("greet").job(name)


@contextlib.contextmanager
def opened(*apps: App) -> Iterator[None]:
    try:
        migrate(apps[0].store)
        yield
    finally:
        for app in apps:
            app.close()


@contextlib.asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[Worker]:
    """A worker that hears, has looked for jobs in vain, and would look again in an hour."""
    worker = Worker(app, **options)
    running = asyncio.create_task(worker.run())
    try:
        await until(lambda: worker.parts.claimer.empty_passes > 0 and worker.parts.wakeups.is_hearing)
        passes = worker.parts.claimer.empty_passes
        worker.parts.claimer.wake()  # so that the pass which the start of hearing brings is over, too
        await until(lambda: worker.parts.claimer.empty_passes > passes)
        yield worker
    finally:
        worker.stop()
        await running


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition, "the worker to be ready", seconds=SOON)


def enqueue_in_another_app(url: str) -> None:
    producer = app_at(url)
    with contextlib.closing(producer):
        producer.client.enqueue(greeting(producer))


def enqueue_in_another_process(url: str) -> None:
    program = f"from tests.fault.wakeups import enqueue_in_another_app; enqueue_in_another_app({url!r})"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2], timeout=SOON)
