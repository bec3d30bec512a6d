"""Chancy on PostgreSQL, with its executor for asyncio and eager polling."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence

from chancy import Chancy, Queue, job

from benchmarks.kit.contender import (
    LONG_SECONDS,
    NAP_SECONDS,
    PADDING,
    AsyncContender,
    Unknown,
    is_worker,
    program,
)
from benchmarks.kit.inspector import Inspector
from benchmarks.kit.ledger import note
from benchmarks.kit.protocol import URL_VARIABLE

CONCURRENCY = 500
POLL_SECONDS = 1

# With a logger of ours: its own writes several lines per job.
app = Chancy(os.environ.get(URL_VARIABLE, ""), log=logging.getLogger("chancy"))


@job(queue="default")
async def noop(*, number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


@job(queue="default")
async def nap(*, number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    await asyncio.sleep(NAP_SECONDS)


@job(queue="default")
async def long(*, number: int, padding: str) -> None:
    """Sleep for seconds."""
    note(number)
    await asyncio.sleep(LONG_SECONDS)


if not is_worker():

    @job(queue="default")
    async def unknown(*, number: int, padding: str) -> None:
        """Never run."""


class ChancyContender(AsyncContender):
    """Its queue, processed by `chancy worker`."""

    packages = ("chancy", "psycopg")
    fate_of_unknown = "failed at once"
    why_no_rate = "it limits the rate of a whole queue, not of a task"

    def settings(self) -> Mapping[str, str]:
        """The configuration and promises, for the report."""
        return {
            "worker": f"chancy worker start; async executor, concurrency {CONCURRENCY}, "
            f"polling every {POLL_SECONDS} s, eager polling, notifications",
            "bulk": "Chancy.push_many",
            "promise": "at least once; ended jobs kept for a day",
        }

    def prepare(self) -> None:
        """Migrate."""
        self.run(self._prepare())

    async def open_async(self) -> None:
        """Connect."""
        await app.__aenter__()
        self._inspector = Inspector(self.url)

    async def close_async(self) -> None:
        """Disconnect."""
        await app.__aexit__(None, None, None)
        self._inspector.close()

    async def enqueue_async(self, number: int) -> None:
        """Enqueue one job."""
        await app.push(noop.job.with_kwargs(number=number, padding=PADDING))

    def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueue in transactions of a thousand."""
        self.run(self._push_many(noop, numbers))

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Enqueue in transactions of a thousand."""
        self.run(self._push_many(nap, numbers))

    def enqueue_long(self, numbers: Sequence[int]) -> None:
        """Enqueue in transactions of a thousand."""
        self.run(self._push_many(long, numbers))

    def enqueue_unknown(self, jobs: int) -> None:
        """Enqueue in transactions of a thousand."""
        self.run(self._push_many(unknown, range(jobs)))

    def unknown(self) -> Unknown:
        """Count them by state."""
        query = (
            "select count(*) from chancy_jobs where func like '%.unknown'"
            " and state {} ('pending', 'running', 'retrying')"
        )
        return Unknown(self._inspector.count(query.format("in")), self._inspector.count(query.format("not in")))

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One worker per process; how much it does at once is kept in the database."""
        self.run(app.declare(_queue(concurrency or CONCURRENCY), upsert=True))
        return [[program("chancy"), "--app", "benchmarks.contenders.chancy.app", "worker", "start"]] * processes

    def left(self) -> int:
        """Jobs that are neither succeeded nor failed."""
        return self._inspector.count(
            "select count(*) from chancy_jobs where queue = 'default' and state in ('pending', 'running', 'retrying')"
        )

    def ended(self) -> int:
        """Jobs that succeeded."""
        return self._inspector.count("select count(*) from chancy_jobs where queue = 'default' and state = 'succeeded'")

    def fill_history(self, rows: int) -> None:
        """Multiply its succeeded jobs."""
        new_id = "lpad(to_hex(serial), 32, '0')::uuid"
        self._inspector.multiply("chancy_jobs", where="state = 'succeeded'", rows=rows, replaced={"id": new_id})

    async def _prepare(self) -> None:
        async with app:
            await app.migrate()
            await app.declare(_queue(CONCURRENCY))

    async def _push_many(self, task: job, numbers: Sequence[int]) -> None:
        jobs = [task.job.with_kwargs(number=number, padding=PADDING) for number in numbers]
        async for _ in app.push_many(jobs):
            pass


def _queue(concurrency: int) -> Queue:
    return Queue(
        "default",
        concurrency=concurrency,
        executor=Chancy.Executor.Async,
        polling_interval=POLL_SECONDS,
        eager_polling=True,
    )


CONTENDER = ChancyContender
