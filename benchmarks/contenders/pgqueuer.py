"""PgQueuer on PostgreSQL, as its performance guide says: asyncpg, a large batch, tuned autovacuum."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from benchmarks.kit.contender import LONG_SECONDS, NAP_SECONDS, PADDING, AsyncContender, Unknown, program, variable
from benchmarks.kit.inspector import Inspector
from benchmarks.kit.ledger import note
from benchmarks.kit.protocol import URL_VARIABLE

BATCH_SIZE = 500
CHUNK = 10_000


@asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    """What `pgq run` asks for."""
    connection = await asyncpg.connect(variable(URL_VARIABLE))
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        note(json.loads(job.payload or b"")["number"])

    @queuer.entrypoint("nap")
    async def nap(job: Job) -> None:
        note(json.loads(job.payload or b"")["number"])
        await asyncio.sleep(NAP_SECONDS)

    @queuer.entrypoint("long")
    async def long(job: Job) -> None:
        note(json.loads(job.payload or b"")["number"])
        await asyncio.sleep(LONG_SECONDS)

    try:
        yield queuer
    finally:
        await connection.close()


class PgQueuerContender(AsyncContender):
    """Its queue, processed by `pgq run`."""

    packages = ("pgqueuer", "asyncpg", "uvloop")
    fate_of_unknown = "kept in the queue"
    why_no_keys = "it limits how many jobs of an entrypoint run at once, not of a key"

    def settings(self) -> Mapping[str, str]:
        """The configuration and promises, for the report."""
        return {
            "worker": f"pgq run --batch-size {BATCH_SIZE}, asyncpg, durability durable, pgq autovac",
            "bulk": "Queries.enqueue with lists, 10,000 jobs a call",
            "promise": "at least once; a log of ended jobs is kept, without their payload",
        }

    def prepare(self) -> None:
        """Install and tune as the documentation says."""
        for command in (["install", "--durability", "durable"], ["autovac"]):
            environment = {**os.environ, "PGDSN": self.url}
            subprocess.run([program("pgq"), *command], check=True, env=environment, capture_output=True)

    async def open_async(self) -> None:
        """Connect."""
        self._connection = await asyncpg.connect(self.url)
        self._queries = Queries(AsyncpgDriver(self._connection))
        self._inspector = Inspector(self.url)

    async def close_async(self) -> None:
        """Disconnect."""
        await self._connection.close()
        self._inspector.close()

    async def enqueue_async(self, number: int) -> None:
        """Enqueue one job."""
        await self._queries.enqueue("noop", _payload(number))

    def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueue with one statement."""
        self.run(self._enqueue_many("noop", numbers))

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Enqueue with one statement."""
        self.run(self._enqueue_many("nap", numbers))

    def enqueue_long(self, numbers: Sequence[int]) -> None:
        """Enqueue with one statement."""
        self.run(self._enqueue_many("long", numbers))

    def enqueue_unknown(self, jobs: int) -> None:
        """Enqueue with a statement per ten thousand jobs."""
        for first in range(0, jobs, CHUNK):
            self.run(self._enqueue_many("unknown", range(first, min(first + CHUNK, jobs))))

    def unknown(self) -> Unknown:
        """Count them in its queue table, which holds no ended jobs."""
        return Unknown(self._inspector.count("select count(*) from pgqueuer where entrypoint = 'unknown'"), 0)

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One `pgq run` per process; it demands room for at least two batches."""
        options = ["--log-level", "WARNING", "--batch-size", str(concurrency // 2 if concurrency else BATCH_SIZE)]
        options += ["--max-concurrent-tasks", str(concurrency)] if concurrency else []
        return [[program("pgq"), "run", *options, "benchmarks.contenders.pgqueuer:worker"]] * processes

    def left(self) -> int:
        """Everything in its queue table."""
        return self._inspector.count("select count(*) from pgqueuer")

    def ended(self) -> int:
        """What its log has as successful."""
        return self._inspector.count("select count(*) from pgqueuer_log where status = 'successful'")

    def fill_history(self, rows: int) -> None:
        """Multiply its log, already aggregated as it would be after a while."""
        new_id = "nextval(pg_get_serial_sequence('pgqueuer_log', 'id'))"
        new = {"id": new_id, "job_id": "-serial", "aggregated": "true"}
        self._inspector.multiply("pgqueuer_log", where="status = 'successful'", rows=rows, replaced=new)

    async def _enqueue_many(self, entrypoint: str, numbers: Sequence[int]) -> None:
        payloads: list[bytes | None] = [_payload(number) for number in numbers]
        await self._queries.enqueue([entrypoint] * len(payloads), payloads, [0] * len(payloads))


def _payload(number: int) -> bytes:
    return json.dumps({"number": number, "padding": PADDING}).encode()


CONTENDER = PgQueuerContender
