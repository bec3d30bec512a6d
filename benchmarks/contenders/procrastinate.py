"""Procrastinate on PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence

from procrastinate import App, PsycopgConnector

from benchmarks.kit.contender import LONG_SECONDS, NAP_SECONDS, PADDING, AsyncContender, Unknown, is_worker, program
from benchmarks.kit.inspector import Inspector
from benchmarks.kit.ledger import note
from benchmarks.kit.protocol import URL_VARIABLE

CONCURRENCY = 50
CONNECTIONS = 20
CHUNK = 10_000

app = App(connector=PsycopgConnector(conninfo=os.environ.get(URL_VARIABLE, ""), max_size=CONNECTIONS))


@app.task(name="noop")
async def noop(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


@app.task(name="nap")
async def nap(number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    await asyncio.sleep(NAP_SECONDS)


@app.task(name="long")
async def long(number: int, padding: str) -> None:
    """Sleep for seconds."""
    note(number)
    await asyncio.sleep(LONG_SECONDS)


if not is_worker():

    @app.task(name="unknown")
    async def unknown(padding: str) -> None:
        """Never run."""


class Procrastinate(AsyncContender):
    """Its queue, processed by `procrastinate worker`."""

    packages = ("procrastinate", "psycopg", "psycopg-pool")
    fate_of_unknown = "failed at once"

    def settings(self) -> Mapping[str, str]:
        """The configuration and promises, for the report."""
        return {
            "worker": f"procrastinate worker --concurrency {CONCURRENCY}, psycopg with {CONNECTIONS} connections",
            "bulk": "task.batch_defer_async, 10,000 jobs a call",
            "promise": "at least once if a task of one's own retries stalled jobs; ended jobs kept",
        }

    def prepare(self) -> None:
        """Apply its schema."""
        subprocess.run([*PROCRASTINATE, "schema", "--apply"], check=True, capture_output=True)

    async def open_async(self) -> None:
        """Connect."""
        await app.open_async()
        self._inspector = Inspector(self.url)

    async def close_async(self) -> None:
        """Disconnect."""
        await app.close_async()
        self._inspector.close()

    async def enqueue_async(self, number: int) -> None:
        """Enqueue one job."""
        await noop.defer_async(number=number, padding=PADDING)

    def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueue with one statement."""
        self.run(noop.batch_defer_async(*_arguments(numbers)))

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Enqueue with one statement."""
        self.run(nap.batch_defer_async(*_arguments(numbers)))

    def enqueue_long(self, numbers: Sequence[int]) -> None:
        """Enqueue with one statement."""
        self.run(long.batch_defer_async(*_arguments(numbers)))

    def enqueue_keyed(self, numbers: Sequence[int], *, keys: int) -> None:
        """Enqueue one by one: a call for many has one lock for all of them."""
        self.run(self._enqueue_keyed(numbers, keys))

    async def _enqueue_keyed(self, numbers: Sequence[int], keys: int) -> None:
        for number in numbers:
            await noop.configure(lock=str(number % keys)).defer_async(number=number, padding=PADDING)

    def enqueue_unknown(self, jobs: int) -> None:
        """Enqueue with a statement per ten thousand jobs."""
        for first in range(0, jobs, CHUNK):
            self.run(unknown.batch_defer_async(*[{"padding": PADDING}] * min(CHUNK, jobs - first)))

    def unknown(self) -> Unknown:
        """Count them by status."""
        query = "select count(*) from procrastinate_jobs where task_name = 'unknown' and status {} ('todo', 'doing')"
        return Unknown(self._inspector.count(query.format("in")), self._inspector.count(query.format("not in")))

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One worker per process."""
        return [[*PROCRASTINATE, "worker", "--concurrency", str(concurrency or CONCURRENCY)]] * processes

    def left(self) -> int:
        """Jobs to do and being done; its indexes are per status."""
        return self._inspector.count(
            "select (select count(*) from procrastinate_jobs where status = 'todo')"
            " + (select count(*) from procrastinate_jobs where status = 'doing')"
        )

    def ended(self) -> int:
        """Jobs that succeeded."""
        return self._inspector.count("select count(*) from procrastinate_jobs where status = 'succeeded'")

    def fill_history(self, rows: int) -> None:
        """Multiply its succeeded jobs, without their events."""
        new_id = "nextval(pg_get_serial_sequence('procrastinate_jobs', 'id'))"
        self._inspector.multiply("procrastinate_jobs", where="status = 'succeeded'", rows=rows, replaced={"id": new_id})


PROCRASTINATE = [program("procrastinate"), "--app", "benchmarks.contenders.procrastinate.app"]


def _arguments(numbers: Sequence[int]) -> list[dict[str, object]]:
    return [{"number": number, "padding": PADDING} for number in numbers]


CONTENDER = Procrastinate
