"""Oban for Python on PostgreSQL. It needs Python 3.12."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence

from oban import Oban, job
from psycopg_pool import AsyncConnectionPool

from benchmarks.kit.contender import NAP_SECONDS, PADDING, AsyncContender, program
from benchmarks.kit.inspector import Inspector
from benchmarks.kit.ledger import note

CONCURRENCY = 100


@job(queue="default")
async def noop(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


@job(queue="default")
async def nap(number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    await asyncio.sleep(NAP_SECONDS)


class ObanContender(AsyncContender):
    """Its queue, worked off by `oban start`."""

    packages = ("oban", "psycopg", "uvloop")

    def settings(self) -> Mapping[str, str]:
        """How it is run."""
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
        """Ask for one job."""
        await self._oban.enqueue(noop.new(number, PADDING))

    def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Ask with one statement."""
        self.run(self._oban.enqueue_many([noop.new(number, PADDING) for number in numbers]))

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Ask with one statement."""
        self.run(self._oban.enqueue_many([nap.new(number, PADDING) for number in numbers]))

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
