"""Measure the cost of the command line's lists and counts with millions of jobs.

    python -m benchmarks.listing [--live N] [--ended N] [--services postgres sqlite mariadb]

Commands run in this process, which excludes the start of an interpreter. Prints the median and the worst of ten calls
of each command, and the CPU time per call of this process and of the server. The exit code is 1 if a command failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from statistics import median

import psycopg
from click.testing import CliRunner

from benchmarks.kit.processes import cpu_seconds
from benchmarks.servers import Address, Servers
from stagepost import App
from stagepost.cli.main import cli
from stagepost.database.store import Store
from stagepost.model.outcome import Completed
from stagepost.store import leases, settling
from stagepost.store.counting import PARTS, repair
from stagepost.store.settlement import Settlement

CALLS = 10
TARGET_MS = 50.0
FILL_SECONDS = 3600.0
QUEUES, TASKS = 10, 5
TABLES = ("stagepost_job", "stagepost_job_history")
COMMANDS = (
    "jobs list",
    "jobs list --state queued",
    "jobs list --state running",
    "jobs list --state completed",
    "jobs list --state failed --state dead_letter",
    "jobs list --queue queue-3",
    "jobs list --task task-3",
    "jobs list --queue queue-3 --task task-3 --state completed",
    "jobs list --queue nowhere",
    "dead list",
    "dead list --jobs",
    "queues list",
    "batches list",
    "top --once",
)
"""Each as typed after `stagepost`."""

NUMBERS = {
    "postgres": "generate_series({first}, {last}) as numbers (n)",
    "mysql": "(select seq as n from seq_{first}_to_{last}) as numbers",
    "sqlite": "(with recursive counted (n) as (select {first} union all select n + 1 from counted where n < {last}) "
    "select n from counted) as numbers",
}
HEX = {"postgres": "lpad(to_hex(n), 8, '0')", "mysql": "lower(lpad(hex(n), 8, '0'))", "sqlite": "printf('%08x', n)"}
REMAINDER = {"postgres": "n % {of}", "mysql": "mod(n, {of})", "sqlite": "n % {of}"}


class Filled:
    """A database in which one job of each kind is copied until there are enough, older ones first."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = App(url)
        self.app.migrate()
        self.store = Store.at(url, call_seconds=FILL_SECONDS, patience_seconds=FILL_SECONDS)
        self.dialect = self.store.dialect.name

    def fill(self, *, live: int, ended: int) -> None:
        """Copy the rows, recount them, and update the database's statistics, as it would itself within minutes."""
        self._make_one_of_each()
        self._multiply("stagepost_job_history", first=1, last=ended)
        self._multiply("stagepost_job", first=ended + 1, last=ended + live)
        for part in PARTS:
            self.store.run(repair(part))
        if self.dialect == "postgres":
            _vacuum(self.url)
        for table in TABLES:
            self._run(f"analyze table {table}" if self.dialect == "mysql" else f"analyze {table}")

    def close(self) -> None:
        """Disconnect."""
        self.store.close()
        self.app.close()

    def _make_one_of_each(self) -> None:
        @self.app.task(name="task-0", queue="queue-0")
        def noop(number: int, padding: str) -> None:
            """Never run."""

        for _ in range(2):
            noop.enqueue(1234567, "x" * 166)
        [job] = self.store.run(
            leases.claim("queue-0", owner="w", task_names=["task-0"], slots=1, lease=timedelta(minutes=5))
        )
        self.store.run(settling.settle([Settlement.of(job, Completed("null"))]))

    def _multiply(self, table: str, *, first: int, last: int) -> None:
        """Insert copies of the only row into its table, then delete the original."""
        columns = self._columns(table)
        replaced = self._replaced(table)
        names, values = ", ".join(columns), ", ".join(replaced.get(name, f"template.{name}") for name in columns)
        numbers = NUMBERS[self.dialect].format(first=first, last=last)
        template = f"(select * from {table} limit 1) as template"  # noqa: S608 - our own tables
        self._run(f"insert into {table} ({names}) select {values} from {numbers} cross join {template}")  # noqa: S608
        text = "cast(id as varchar(36))" if self.dialect == "postgres" else "id"
        self._run(f"delete from {table} where {text} not like '%-7000-8000-000000000000'")  # noqa: S608

    def _replaced(self, table: str) -> dict[str, str]:
        new_id = self._joined(HEX[self.dialect], "'-0000-7000-8000-000000000000'")
        replaced = {
            "id": f"({new_id})::uuid" if self.dialect == "postgres" else new_id,
            "queue_name": self._joined("'queue-'", self._text(QUEUES)),
            "task_name": self._joined("'task-'", self._text(TASKS)),
            "available_at": "template.available_at + n",
            "created_at": "template.created_at + n",
        }
        if table == "stagepost_job_history":
            is_dead = f"{REMAINDER[self.dialect].format(of=100)} = 0"
            replaced |= {
                "state": f"case when {is_dead} then 'dead_letter' else 'completed' end",
                "reason": f"case when {is_dead} then {self._joined(repr('it broke: '), self._text(300))} end",
                "error": f"case when {is_dead} then 'it broke' end",
                "finished_at": "template.finished_at + n",
            }
        return replaced

    def _text(self, of: int) -> str:
        return (
            f"cast({REMAINDER[self.dialect].format(of=of)} as {'char(8)' if self.dialect == 'mysql' else 'varchar(8)'})"
        )

    def _joined(self, *texts: str) -> str:
        return f"concat({', '.join(texts)})" if self.dialect == "mysql" else " || ".join(texts)

    def _columns(self, table: str) -> list[str]:
        with self.store.transaction() as connection:
            cursor = connection.raw.cursor()
            cursor.execute(f"select * from {table} limit 1")  # noqa: S608
            return [column[0] for column in cursor.description]

    def _run(self, sql: str) -> None:
        with self.store.transaction() as connection:
            connection.execute(sql.replace("%", "%%") if self.dialect == "mysql" else sql, {})


def _vacuum(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"vacuum {table}".encode())


@contextmanager
def filled(servers: Servers, service: str, *, live: int, ended: int) -> Iterator[Address]:
    """Lend a full database."""
    with servers.database(service) as address:
        full = Filled(address.url)
        full.fill(live=live, ended=ended)
        full.close()
        yield address


def cost_of(command: str, address: Address) -> str:
    """Run a command repeatedly, after one call to warm up; an unexpected error is raised."""
    took = []
    _call(command, address.url)
    ours, servers = time.process_time(), cpu_seconds(address.server_pids)
    for _ in range(CALLS):
        began_at = time.monotonic()
        _call(command, address.url)
        took.append((time.monotonic() - began_at) * 1000)
    ours, servers = time.process_time() - ours, cpu_seconds(address.server_pids) - servers
    cpu = f"CPU {ours / CALLS * 1000:.1f} here, {servers / CALLS * 1000:.1f} in the server"
    missed = "" if median(took) < TARGET_MS else f"; target {TARGET_MS:g}"
    return f"{median(took):.1f} ms, worst {max(took):.1f}; {cpu}{missed}"


def _call(command: str, url: str) -> None:
    result = CliRunner().invoke(cli, command.split(), env={"STAGEPOST_DATABASE_URL": url})
    if result.exit_code or not result.output:
        raise RuntimeError(f"exit code {result.exit_code}: {result.output}{result.exception}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.listing", description=__doc__)
    parser.add_argument("--live", type=int, default=1_000_000)
    parser.add_argument("--ended", type=int, default=5_000_000)
    parser.add_argument("--services", nargs="+", default=["postgres", "sqlite", "mariadb"])
    options = parser.parse_args(arguments)
    is_well = True
    with Servers() as servers:
        for service in options.services:
            began_at = time.monotonic()
            with filled(servers, service, live=options.live, ended=options.ended) as address:
                print(f"{service}: filled in {time.monotonic() - began_at:.0f} s", flush=True)
                for command in COMMANDS:
                    try:
                        found = cost_of(command, address)
                    except RuntimeError as error:
                        is_well, found = False, str(error)
                    print(f"{service}, {command}: {found}", flush=True)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
