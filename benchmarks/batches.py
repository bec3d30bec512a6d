"""Measure what a batch costs: beside the bare rows, beside the same jobs outside a batch, and small beside large.

    python -m benchmarks.batches [--items N] [--rounds R] [--services postgres mariadb sqlite]

Prints each sample and the medians of the ratios; the exit code is 1 if a ledger was wrong.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from benchmarks.catalogue import ENTRIES
from benchmarks.kit.contender import PADDING
from benchmarks.kit.processes import cpu_seconds
from benchmarks.measure import QUICK, Contestant, Facts, Sizes
from benchmarks.servers import Address, Servers
from stagepost import App, BatchState, Item
from stagepost.model.batch import item_id
from tests.services.mariadb import connect

CHUNK = 5_000
SMALL = 5_000
SMALL_BATCHES = 10
"""How many small batches are measured together, because one is too short to measure."""
TASK = "benchmarks.contenders.stagepost.noop"
TARGETS = {
    "adding, rate / bare rate": (">=", 0.5),
    "draining, CPU per job / outside a batch": ("<=", 1.25),
    "adding, CPU per item / small batch": ("<=", 1.2),
    "draining, CPU per item / small batch": ("<=", 1.2),
}


class Visit:
    """One empty database, and an app that enqueues jobs for the contender's workers."""

    def __init__(self, service: str, address: Address, sizes: Sizes) -> None:
        entry = next(entry for entry in ENTRIES if entry.program == "stagepost" and entry.service == service)
        self.contestant = Contestant(entry, Path(sys.executable), address, sizes)
        self.contestant.call("prepare")
        self.address = address
        self.app = App(address.url)

        @self.app.task(name=TASK)
        async def noop(number: int, padding: str) -> None:
            """Never called here: workers run their own task of this name."""

        self._noop = noop

    def items(self, first: int, number: int) -> Iterator[Item]:
        """Yield items one by one, as a producer does."""
        return (self._noop.item(f"file {at}", at, PADDING) for at in range(first, first + number))

    def add(self, *sizes: int) -> Facts:
        """Add batches of these sizes, and seal them."""
        first, seconds, cpu = 0, 0.0, 0.0
        for number, size in enumerate(sizes):
            meter = Meter(self.address)
            with self.app.batch(f"batch {number}") as batch:
                batch.add(self.items(first, size), chunk=CHUNK)
            first, seconds, cpu = first + size, seconds + meter.seconds, cpu + meter.cpu_seconds
        return {"count": first, "seconds": seconds, "cpu_seconds": cpu, "ledger": "exact"}

    def drain(self, jobs: int) -> Facts:
        """Process all jobs with one worker; all batches must then be done, with the expected number of items."""
        facts = self.contestant.call("drain", jobs)
        cpu = facts["worker_cpu_seconds"] + (facts["server_cpu_seconds"] or 0.0)
        return {**facts, "cpu_seconds": cpu}

    def check(self, *sizes: int) -> str:
        """Compare the batches with the added items, and describe any difference."""
        wrong = []
        for number, size in enumerate(sizes):
            batch = self.app.batch(f"batch {number}")
            batch.wait(timeout=10)
            if (batch.state(), batch.counts().completed, batch.counts().total) != (BatchState.DONE, size, size):
                wrong.append(f"batch {number} has {batch.counts()}")
        return "; ".join(wrong) or "exact"

    def bare(self, jobs: int) -> Facts:
        """Insert only the rows of a batch into the empty table, with a transaction per chunk."""
        columns, rows = self._rows(jobs)
        meter = Meter(self.address)
        PUTTERS[self.contestant.entry.service](self.address.url, columns, rows)
        facts = {"count": jobs, "seconds": meter.seconds, "cpu_seconds": meter.cpu_seconds}
        [(found,)] = self._execute("select count(*) from stagepost_job")
        return {**facts, "ledger": "exact" if found == jobs else f"{found} rows, not {jobs}"}

    def _rows(self, jobs: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Copies of a row that the product stored, with new ids and keys."""
        batch = self.app.batch("bare")
        batch.add(self.items(0, 1))
        with self.app.transaction() as connection:
            cursor = connection.cursor()
            cursor.execute("select * from stagepost_job")
            columns = [column[0] for column in cursor.description]
            [row] = [
                [json.dumps(value) if isinstance(value, dict | list) else value for value in found]
                for found in cursor.fetchall()
            ]
            cursor.execute("delete from stagepost_job")
        batch_id, id_at, key_at = batch.stored().id, columns.index("id"), columns.index("item_key")
        rows = []
        for number in range(jobs):
            row[id_at], row[key_at] = item_id(batch_id, f"file {number}"), f"file {number}"
            rows.append(tuple(row))
        return columns, rows

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        with self.app.transaction() as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            return list(cursor.fetchall())


class Meter:
    """Elapsed time, and CPU time of this process and the server, since this was created."""

    def __init__(self, address: Address) -> None:
        self._pids = address.server_pids
        self._began_at, self._cpu = time.monotonic(), self._cpu_seconds()

    @property
    def seconds(self) -> float:
        """Elapsed time since this was created."""
        return time.monotonic() - self._began_at

    @property
    def cpu_seconds(self) -> float:
        """CPU time since then."""
        return self._cpu_seconds() - self._cpu

    def _cpu_seconds(self) -> float:
        return time.process_time() + (cpu_seconds(self._pids) if self._pids else 0.0)


def put_in_postgres(url: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows with COPY, the fastest way."""
    with psycopg.connect(url) as connection:
        for first in range(0, len(rows), CHUNK):
            with connection.cursor().copy(f"copy stagepost_job ({', '.join(columns)}) from stdin".encode()) as copy:
                for row in rows[first : first + CHUNK]:
                    copy.write_row(row)
            connection.commit()


def put_in_sqlite(url: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert many rows with one prepared statement."""
    marks = ", ".join("?" * len(columns))
    insert = f"insert into stagepost_job ({', '.join(columns)}) values ({marks})"  # noqa: S608 - our own columns
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("pragma synchronous = full")
        for first in range(0, len(rows), CHUNK):
            connection.execute("begin immediate")
            connection.executemany(insert, rows[first : first + CHUNK])
            connection.execute("commit")


def put_in_mariadb(url: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows with statements of many values, which the driver builds."""
    marks = ", ".join(["%s"] * len(columns))
    insert = f"insert into stagepost_job ({', '.join(columns)}) values ({marks})"  # noqa: S608 - our own columns
    with closing(connect(url)) as connection, connection.cursor() as cursor:
        for first in range(0, len(rows), CHUNK):
            cursor.executemany(insert, rows[first : first + CHUNK])
            connection.commit()


PUTTERS = {"postgres": put_in_postgres, "mariadb": put_in_mariadb, "sqlite": put_in_sqlite}


def measure(service: str, servers: Servers, items: int) -> dict[str, Facts]:
    """Take one sample of everything, each in a separate database."""
    sizes = QUICK if items < 10_000 else Sizes()
    small = [SMALL] * SMALL_BATCHES
    samples: dict[str, Facts] = {}
    with servers.database(service) as address:
        visit = Visit(service, address, sizes)
        samples["bare"] = visit.bare(items)
        visit.app.close()
    for name, batches in {"large": [items], "small": small}.items():
        with servers.database(service) as address:
            visit = Visit(service, address, sizes)
            samples[f"add {name}"] = visit.add(*batches)
            drained = visit.drain(sum(batches))
            faults = [text for text in (drained["ledger"], visit.check(*batches)) if text != "exact"]
            samples[f"drain {name}"] = {**drained, "ledger": "; ".join(faults) or "exact"}
            visit.app.close()
    with servers.database(service) as address:
        visit = Visit(service, address, sizes)
        visit.contestant.call("enqueue-bulk", items)
        samples["drain without"] = visit.drain(items)
        visit.app.close()
    return samples


def ratios(samples: dict[str, Facts]) -> dict[str, float]:
    """The ratios that have targets, in the order of the targets."""
    rates = {name: facts["count"] / facts["seconds"] for name, facts in samples.items()}
    costs = {name: facts["cpu_seconds"] / facts["count"] for name, facts in samples.items()}
    values = (
        rates["add large"] / rates["bare"],
        costs["drain large"] / costs["drain without"],
        costs["add large"] / costs["add small"],
        costs["drain large"] / costs["drain small"],
    )
    return dict(zip(TARGETS, values, strict=True))


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.batches", description=__doc__)
    parser.add_argument("--items", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--services", nargs="+", choices=PUTTERS, default=["postgres", "sqlite"])
    options = parser.parse_args()
    is_exact = True
    found: dict[str, list[dict[str, float]]] = {service: [] for service in options.services}
    with Servers() as servers:
        for _ in range(options.rounds):
            for service in options.services:
                samples = measure(service, servers, options.items)
                found[service].append(ratios(samples))
                for name, facts in samples.items():
                    is_exact = is_exact and facts["ledger"] == "exact"
                    speed, cost = facts["count"] / facts["seconds"], facts["cpu_seconds"] / facts["count"] * 1e6
                    print(f"{service}, {name}: {speed:,.0f}/s, {cost:,.1f} µs CPU each, ledger {facts['ledger']}")
    for service, rounds in found.items():
        for name, (sign, target) in TARGETS.items():
            print(f"{service}: {name}: {median(one[name] for one in rounds):.2f} (target {sign} {target})")
    return 0 if is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
