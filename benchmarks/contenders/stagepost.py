"""Stagepost, on whichever database the address names."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from benchmarks.kit.contender import NAP_SECONDS, PADDING, Cannot, Contender
from benchmarks.kit.inspector import Inspector
from benchmarks.kit.ledger import note
from benchmarks.kit.protocol import URL_VARIABLE
from stagepost import App
from stagepost.store.migrate import migrate

CONCURRENCY = 50

app = App(os.environ.get(URL_VARIABLE, "sqlite://"))


@app.task
async def noop(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


@app.task
async def nap(number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    await asyncio.sleep(NAP_SECONDS)


class Stagepost(Contender):
    """The product as `stagepost worker` runs it."""

    packages = ("stagepost", "psycopg", "PyMySQL")

    def settings(self) -> Mapping[str, str]:
        """How it is run."""
        return {
            "worker": f"stagepost worker --concurrency {CONCURRENCY}, prefetch adapts by itself",
            "bulk": "app.enqueue_many, 10,000 jobs a call",
            "promise": "at least once, fenced; effects in the job's transaction once; ended jobs kept",
        }

    def prepare(self) -> None:
        """Make the tables."""
        migrate(app.store)
        app.close()

    def open(self) -> None:
        """Connect."""
        app.store.dialect  # noqa: B018 - opens the store

    def close(self) -> None:
        """Disconnect."""
        app.close()

    def enqueue(self, number: int) -> None:
        """Ask in a transaction of its own."""
        noop.enqueue(number, PADDING)

    def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Ask in one transaction."""
        app.enqueue_many([noop.job(number, PADDING) for number in numbers])

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Ask in one transaction."""
        app.enqueue_many([nap.job(number, PADDING) for number in numbers])

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One worker, or several under its own supervisor."""
        several = ["--processes", str(processes)] if processes > 1 else []
        slots = str(concurrency or CONCURRENCY)
        stagepost = [sys.executable, "-m", "stagepost", "worker", "--app", "benchmarks.contenders.stagepost:app"]
        return [[*stagepost, "--concurrency", slots, "--log-level", "warning", *several]]

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
        with app.transaction() as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            return int(cursor.fetchone()[0])


CONTENDER = Stagepost
