"""Stagepost on the database that the address names, and through a broker if one is given."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.kit.contender import (
    FLOW_VARIABLE,
    LONG_SECONDS,
    NAP_SECONDS,
    NO_PREFETCH,
    PADDING,
    RATE,
    Cannot,
    Contender,
    Unknown,
    is_worker,
)
from benchmarks.kit.inspector import Inspector
from benchmarks.kit.ledger import note
from benchmarks.kit.protocol import BROKER_URL_VARIABLE, URL_VARIABLE, VARIANT_VARIABLE
from stagepost import App, JobContext, RateLimit
from stagepost.config import Settings
from stagepost.database.migrate import migrate

NOOP = "benchmarks.contenders.stagepost.noop"
CONCURRENCY = 50
FLOW = os.environ.get(FLOW_VARIABLE)
PREFETCH = 2000
"""How many messages the tuned variant holds: four groups of claims, so that the next has arrived when one is done. The
others use the default, which adapts by itself."""
WARM_UP_SECONDS = 60.0
CHUNK = 10_000
BROKER = os.environ.get(BROKER_URL_VARIABLE) or None
VARIANT = os.environ.get(VARIANT_VARIABLE) or ""
QUEUE_TYPE, _, TUNED = VARIANT.partition("-")
SENDER_QUEUE = "sender"
"""The queue of a worker that sends the jobs of all queues but runs none of the benchmark's."""

app = App(
    settings=Settings.load(
        database_url=os.environ.get(URL_VARIABLE, "sqlite://"),
        transport=BROKER,
        rabbitmq={"queue_type": QUEUE_TYPE if BROKER else "quorum", **({"prefetch": PREFETCH} if TUNED else {})},
        prefetch=0 if FLOW == NO_PREFETCH else None,
    )
)


async def on_the_loop(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


def in_a_thread(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


def in_a_transaction(job: JobContext, number: int, padding: str) -> None:
    """Complete the job in the handler's own transaction, which would also contain its effects."""
    note(number)
    with app.transaction() as tx:
        job.complete(tx)


HANDLERS: dict[str, Callable[..., Any]] = {
    "threads": in_a_thread,
    "processes": in_a_thread,
    "transactions": in_a_transaction,
}
noop = app.task(name=NOOP, pool="process" if VARIANT == "processes" else "auto")(HANDLERS.get(VARIANT, on_the_loop))


@app.task
async def nap(number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    await asyncio.sleep(NAP_SECONDS)


@app.task
async def long(number: int, padding: str) -> None:
    """Sleep for seconds."""
    note(number)
    await asyncio.sleep(LONG_SECONDS)


def _key(number: int, padding: str, key: int) -> str:
    return str(key)


@app.task(max_running=1, limit_by=_key)
async def keyed(number: int, padding: str, key: int) -> None:
    """Do nothing, one at a time per key."""
    note(number)


@app.task(rate_limit=RateLimit("bench", per_second=RATE))
async def rated(number: int, padding: str) -> None:
    """Do nothing, a few times a second."""
    note(number)


if not is_worker():

    @app.task(name="unknown")
    async def unknown(padding: str) -> None:
        """Never run."""


@app.task(queue=SENDER_QUEUE)
async def warm_up() -> None:
    """Show that a sender is working: it sends this job to itself."""


HANDLED_BY = {
    "threads": {"handler": "`def`, in threads"},
    "processes": {"handler": "`def` with pool='process', as many as there are cores"},
    "transactions": {"handler": "`def`, ends its job by job.complete(tx) in app.transaction()"},
}
WORKER = [
    sys.executable, "-m", "stagepost", "worker", "--app", "benchmarks.contenders.stagepost:app",
    "--log-level", "warning",
]  # fmt: skip


class Stagepost(Contender):
    """The product as `stagepost worker` runs it."""

    packages = ("stagepost", "psycopg", "PyMySQL")
    fate_of_unknown = "kept in the queue"

    def settings(self) -> Mapping[str, str]:
        """The configuration and promises, for the report."""
        carried = {
            "broker": f"RabbitMQ: {QUEUE_TYPE} queue, persistent, mandatory, confirms, prefetch "
            f"{PREFETCH if TUNED else 'by default'}, acknowledged when the end is stored; PostgreSQL keeps the jobs",
            "enqueue": "until the broker has confirmed every message; a process beside the client sends "
            f"(stagepost worker --queues {SENDER_QUEUE}), and counts as client",
        }
        return {
            "worker": f"stagepost worker --concurrency {_slots()}, prefetch adapts by itself",
            **(HANDLED_BY.get(VARIANT) or (carried if VARIANT else {})),
            "bulk": "task.enqueue_many, 10,000 jobs a call",
            "promise": "at least once, fenced; effects in the job's transaction once; ended jobs kept",
        }

    def prepare(self) -> None:
        """Create the tables."""
        migrate(app.store)
        app.close()

    def open(self) -> None:
        """Connect."""
        app.store.dialect  # noqa: B018 - opens the store

    def close(self) -> None:
        """Disconnect."""
        app.close()

    def enqueue(self, number: int) -> None:
        """Enqueue in a separate transaction."""
        noop.enqueue(number, PADDING)

    def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueue in one transaction."""
        noop.enqueue_many([(number, PADDING) for number in numbers])

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Enqueue in one transaction."""
        nap.enqueue_many([(number, PADDING) for number in numbers])

    def enqueue_long(self, numbers: Sequence[int]) -> None:
        """Enqueue in one transaction."""
        long.enqueue_many([(number, PADDING) for number in numbers])

    def enqueue_keyed(self, numbers: Sequence[int], *, keys: int) -> None:
        """Enqueue in one transaction, with max_running=1 and limit_by."""
        keyed.enqueue_many([(number, PADDING, number % keys) for number in numbers])

    def enqueue_rated(self, numbers: Sequence[int]) -> None:
        """Enqueue in one transaction."""
        rated.enqueue_many([(number, PADDING) for number in numbers])

    def enqueue_unknown(self, jobs: int) -> None:
        """Enqueue in transactions of ten thousand."""
        for first in range(0, jobs, CHUNK):
            unknown.enqueue_many([(PADDING,)] * min(CHUNK, jobs - first))

    def unknown(self) -> Unknown:
        """Count them in both tables."""
        return Unknown(
            self._count("select count(*) from stagepost_job where task_name = 'unknown'"),
            self._count("select count(*) from stagepost_job_history where task_name = 'unknown'"),
        )

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One worker, or several under its own supervisor."""
        several = ["--processes", str(processes)] if processes > 1 else []
        return [[*WORKER, "--concurrency", str(concurrency or _slots()), *several]]

    def senders(self) -> list[list[str]]:
        """One worker that only sends."""
        return [[*WORKER, "--queues", SENDER_QUEUE]] if BROKER else []

    def until_senders_work(self) -> None:
        """Let it send something to itself."""
        warm_up.enqueue().result(timeout=WARM_UP_SECONDS)

    def unsent(self) -> int:
        """Whether a queued job is not marked as sent."""
        return self._count("select count(*) from (select 1 from stagepost_job where sent_at is null limit 1) as found")

    def left(self) -> int:
        """Everything in the table of live jobs."""
        return self._count("select count(*) from stagepost_job")

    def ended(self) -> int:
        """Completed jobs; one that failed would be missing here."""
        return self._count("select count(*) from stagepost_job_history where state = 'completed'")

    def fill_history(self, rows: int) -> None:
        """Copy ended jobs under new ids, older than all others."""
        if app.store.dialect.name != "postgres":
            raise Cannot("history is filled on PostgreSQL only")
        inspector = Inspector(self.url)
        new_id = "lpad(to_hex(serial), 32, '0')::uuid"
        inspector.multiply("stagepost_job_history", where="state = 'completed'", rows=rows, replaced={"id": new_id})
        inspector.close()

    def _count(self, sql: str) -> int:
        with app.transaction(read_only=True) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            return int(cursor.fetchone()[0])


def _slots() -> int:
    """How many jobs to run at once; with processes, at most the number of cores."""
    return os.cpu_count() or 1 if VARIANT == "processes" else CONCURRENCY


CONTENDER = Stagepost
