"""Oban for Python on PostgreSQL. It needs Python 3.12."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence

from oban import Oban, job
from psycopg_pool import AsyncConnectionPool

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

CONCURRENCY = 100
CHUNK = 10_000


@job(queue="default")
async def noop(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


@job(queue="default")
async def nap(number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    await asyncio.sleep(NAP_SECONDS)


@job(queue="default")
async def long(number: int, padding: str) -> None:
    """Sleep for seconds."""
    note(number)
    await asyncio.sleep(LONG_SECONDS)


if not is_worker():

    @job(queue="default")
    async def unknown(padding: str) -> None:
        """Never run."""


class ObanContender(AsyncContender):
    """Its queue, processed by `oban start`."""

    packages = ("oban", "psycopg", "uvloop")
    fate_of_unknown = "an error, and tried again later"
    why_no_keys = "limits per key are in Oban Pro only"
    why_no_rate = "rate limits are in Oban Pro only"

    def settings(self) -> Mapping[str, str]:
        """The configuration and promises, for the report."""
        return {
            "worker": f"oban start --queues default:{CONCURRENCY}, uvloop",
            "bulk": "Oban.enqueue_many, 10,000 jobs a call",
            "promise": "at least once; ended jobs kept for a day",
        }

    def prepare(self) -> None:
        """Install its schema."""
        environment = {**os.environ, **self.environment()}
        subprocess.run([program("oban"), "install"], check=True, env=environment, capture_output=True)

    def environment(self) -> Mapping[str, str]:
        """Its own name for the address."""
        return {"OBAN_DSN": self.url}

    async def open_async(self) -> None:
        """Connect as a client that only enqueues."""
        self._pool = AsyncConnectionPool(self.url, open=False)
        await self._pool.open()
        self._oban = Oban(pool=self._pool)
        await self._oban.start()
        self._inspector = Inspector(self.url)

    async def close_async(self) -> None:
        """Disconnect."""
        await self._oban.stop()
        await self._pool.close()
        self._inspector.close()

    async def enqueue_async(self, number: int) -> None:
        """Enqueue one job."""
        await self._oban.enqueue(noop.new(number, PADDING))

    def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueue with one statement."""
        self.run(self._oban.enqueue_many([noop.new(number, PADDING) for number in numbers]))

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Enqueue with one statement."""
        self.run(self._oban.enqueue_many([nap.new(number, PADDING) for number in numbers]))

    def enqueue_long(self, numbers: Sequence[int]) -> None:
        """Enqueue with one statement."""
        self.run(self._oban.enqueue_many([long.new(number, PADDING) for number in numbers]))

    def enqueue_unknown(self, jobs: int) -> None:
        """Enqueue with a statement per ten thousand jobs."""
        for first in range(0, jobs, CHUNK):
            self.run(self._oban.enqueue_many([unknown.new(PADDING) for _ in range(min(CHUNK, jobs - first))]))

    def unknown(self) -> Unknown:
        """Count them by state."""
        query = (
            "select count(*) from oban_jobs where worker like '%.unknown'"
            " and state {} ('available', 'scheduled', 'suspended', 'executing', 'retryable')"
        )
        return Unknown(self._inspector.count(query.format("in")), self._inspector.count(query.format("not in")))

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One worker per process."""
        queues = f"default:{concurrency or CONCURRENCY}"
        return [[program("oban"), "start", "--queues", queues, "--log-level", "warning"]] * processes

    def left(self) -> int:
        """Jobs that wait or run."""
        return self._inspector.count(
            "select count(*) from oban_jobs"
            " where state in ('available', 'scheduled', 'suspended', 'executing', 'retryable')"
        )

    def ended(self) -> int:
        """Completed jobs."""
        return self._inspector.count("select count(*) from oban_jobs where state = 'completed'")

    def fill_history(self, rows: int) -> None:
        """Multiply its completed jobs."""
        new_id = "nextval(pg_get_serial_sequence('oban_jobs', 'id'))"
        self._inspector.multiply("oban_jobs", where="state = 'completed'", rows=rows, replaced={"id": new_id})


CONTENDER = ObanContender
