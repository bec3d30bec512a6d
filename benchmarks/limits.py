"""The bare limit of a database: Stagepost's statements on its tables and nothing else, with one client."""

from __future__ import annotations

import json
import re
import resource
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg

from benchmarks import broker_limits
from benchmarks.catalogue import Entry
from benchmarks.kit.contender import PADDING
from benchmarks.kit.processes import cpu_seconds
from benchmarks.measure import CallFailed, Cannot, Facts, Sizes
from benchmarks.servers import Address
from stagepost import App
from stagepost.clock import SystemClock
from stagepost.database.dialect import POSTGRES, SQLITE, ParameterStyle, calls_of
from stagepost.database.migrate import migrate
from stagepost.database.runner import drive
from stagepost.database.statement import Operation, Rows, Statement
from stagepost.store.leases import claim
from tests.services.postgres import PROGRAM_DIRECTORIES
from tests.services.processes import find_program

__all__ = ["has_any", "measure", "pgbench_claim_and_end", "pgbench_insert"]

BATCH = 500
REAPED_SECONDS = 0.5
"""The time after which the server has counted the CPU time of an ended session's process."""
OWNER = "limit"
TASK = "noop"
QUEUE = "default"
LEASE = timedelta(seconds=30)
BULK_CHUNK = 10_000


def has_any(keys: Sequence[str], service: str) -> bool:
    """Whether a bare database or broker has one of these figures; most apply only to job systems."""
    return any((service, key) in LIMITS or (service == "rabbitmq" and key in broker_limits.LIMITS) for key in keys)


def measure(keys: Sequence[str], entry: Entry, address: Address, sizes: Sizes) -> Iterator[tuple[str, Facts]]:
    """Measure the figures that a bare database or broker has."""
    for key in keys:
        if entry.service == "rabbitmq" and key in broker_limits.LIMITS:
            yield key, broker_limits.LIMITS[key](address, sizes, entry.variant)
        elif (entry.service, key) in LIMITS:
            _empty(address.url)
            yield key, LIMITS[entry.service, key](address, sizes)


def pgbench_claim_and_end() -> str:
    """Lease 500 jobs in one transaction and move them to history in the next; the client gets ids and payloads."""
    ending = Statement("end_jobs", {"changes": ""})
    return (
        f"with claimed as (\n{_sql(_claiming())}\n)\n"
        f"select json_agg(json_build_object({CHANGE}))::text as changes, string_agg(payload, '') as payloads\n"
        f"from claimed \\gset\n{_sql(ending)};\n"
    )


def pgbench_insert() -> str:
    """Insert one job per transaction, only its row, with an id that the database generates."""
    payload = json.dumps([123456, PADDING])
    now = "(extract(epoch from statement_timestamp()) * 1000000)"
    return (
        "insert into stagepost_job (id, queue_name, task_name, state, priority, available_at, attempts, failures, "
        "crashes, max_attempts, payload, created_at, updated_at)\n"
        f"values (gen_random_uuid(), '{QUEUE}', '{TASK}', 'queued', 0, {now}, 0, 0, 0, 4, '{payload}', {now}, {now});\n"
    )


# Values are parameters in pgbench's prepared mode, and `:name` is its notation as well as ours.
CHANGE = "'id', id, 'attempt', attempts, 'owner', locked_by, 'state', 'completed', 'result', 'null'"


def _claiming() -> Statement:
    return _first_of(claim(QUEUE, owner=OWNER, task_names=[TASK], slots=BATCH, lease=LEASE))


def _first_of(operation: Operation[Any]) -> Statement:
    step = next(operation.start())
    assert isinstance(step, Statement)
    return step


def _sql(statement: Statement) -> str:
    """The text that PostgreSQL would get, with `:name` for parameters."""
    return next(calls_of(statement, dialect=POSTGRES, style=ParameterStyle.NAMED, clock=SystemClock())).sql


def _postgres_claim_and_end(address: Address, sizes: Sizes) -> Facts:
    jobs = max(sizes.jobs // BATCH, 1) * BATCH
    _enqueue(address.url, jobs)
    script, parameters = pgbench_claim_and_end(), _claiming().parameters
    facts = _pgbench(address, script, parameters, transactions=jobs // BATCH, jobs=jobs)
    return {**facts, "ledger": _verdict(address.url, live=0, ended=jobs)}


def _postgres_insert(address: Address, sizes: Sizes) -> Facts:
    facts = _pgbench(address, pgbench_insert(), {}, transactions=sizes.singles, jobs=sizes.singles)
    return {**facts, "ledger": _verdict(address.url, live=sizes.singles, ended=0)}


def _postgres_copy(address: Address, sizes: Sizes) -> Facts:
    columns, rows = _copies(address.url, sizes.jobs)
    meter = _Meter(address)
    with psycopg.connect(address.url) as connection:
        names = ", ".join(columns)
        for first in range(0, len(rows), BULK_CHUNK):
            with connection.cursor().copy(f"copy stagepost_job ({names}) from stdin".encode()) as copy:
                for row in rows[first : first + BULK_CHUNK]:
                    copy.write_row(row)
            connection.commit()
    return {**meter.stop(sizes.jobs), "ledger": _verdict(address.url, live=sizes.jobs, ended=0)}


def _sqlite_claim_and_end(address: Address, sizes: Sizes) -> Facts:
    jobs = max(sizes.jobs // BATCH, 1) * BATCH
    _enqueue(address.url, jobs)
    claiming = _claiming()
    meter = _Meter(address)
    with closing(_sqlite(address.url)) as connection:
        for _ in range(jobs // BATCH):
            rows = _run(connection, claiming)
            _run(connection, Statement("end_jobs", {"changes": _changes(rows)}))
    return {**meter.stop(jobs), "ledger": _verdict(address.url, live=0, ended=jobs)}


def _sqlite_insert(address: Address, sizes: Sizes) -> Facts:
    return _sqlite_rows(address, sizes.singles, chunk=1)


def _sqlite_bulk(address: Address, sizes: Sizes) -> Facts:
    return _sqlite_rows(address, sizes.jobs, chunk=BULK_CHUNK)


def _sqlite_rows(address: Address, jobs: int, *, chunk: int) -> Facts:
    columns, rows = _copies(address.url, jobs)
    marks = ", ".join("?" * len(columns))
    insert = f"insert into stagepost_job ({', '.join(columns)}) values ({marks})"  # noqa: S608 - our own columns
    meter = _Meter(address)
    with closing(_sqlite(address.url)) as connection:
        for first in range(0, jobs, chunk):
            connection.execute("begin immediate")
            connection.executemany(insert, rows[first : first + chunk])
            connection.execute("commit")
    return {**meter.stop(jobs), "ledger": _verdict(address.url, live=jobs, ended=0)}


LIMITS: dict[tuple[str, str], Callable[[Address, Sizes], Facts]] = {
    ("postgres", "enqueue_one"): _postgres_insert,
    ("postgres", "enqueue_bulk"): _postgres_copy,
    ("postgres", "drain_1"): _postgres_claim_and_end,
    ("sqlite", "enqueue_one"): _sqlite_insert,
    ("sqlite", "enqueue_bulk"): _sqlite_bulk,
    ("sqlite", "drain_1"): _sqlite_claim_and_end,
}


class _Meter:
    """Time and CPU time of this process, its children and the server."""

    def __init__(self, address: Address) -> None:
        self._pids = address.server_pids
        self._server, self._client, self._began_at = self._server_seconds(), _client_seconds(), time.monotonic()

    def stop(self, jobs: int) -> Facts:
        seconds = time.monotonic() - self._began_at
        server = self._server_seconds()
        return {
            "count": jobs,
            "seconds": seconds,
            "worker_cpu_seconds": _client_seconds() - self._client,
            "server_cpu_seconds": None if server is None or self._server is None else server - self._server,
        }

    def _server_seconds(self) -> float | None:
        return cpu_seconds(self._pids) if self._pids else None


def _pgbench(address: Address, script: str, parameters: Mapping[str, Any], *, transactions: int, jobs: int) -> Facts:
    """Run a script with one client, timed by pgbench, which excludes the time to connect."""
    program = find_program("pgbench", PROGRAM_DIRECTORIES)
    if program is None:
        raise Cannot("pgbench is not installed (Debian: postgresql-contrib or postgresql)")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        given = [word for name, value in parameters.items() for word in ("-D", f"{name}={value}")]
        command = [str(program), "-n", "-M", "prepared", "-c", "1", "-t", str(transactions), "-f", file.name, *given]
        meter = _Meter(address)
        done = subprocess.run([*command, address.url], capture_output=True, text=True, check=False)
        time.sleep(REAPED_SECONDS)
        facts = meter.stop(jobs)
    speed = re.search(r"tps = ([0-9.]+)", done.stdout)
    if done.returncode != 0 or speed is None:
        raise CallFailed(f"pgbench failed: {done.stderr.strip()[-500:]}")
    return {**facts, "seconds": transactions / float(speed[1])}


def _empty(url: str) -> None:
    app = App(url)
    migrate(app.store)
    with app.transaction() as connection:
        for table in ("stagepost_job", "stagepost_job_history"):
            connection.execute(f"delete from {table}")  # noqa: S608 - our own tables
    app.close()


def _enqueue(url: str, jobs: int) -> None:
    app = App(url)

    @app.task(name=TASK, queue=QUEUE)
    def noop(number: int, padding: str) -> None:
        """Never run."""

    for first in range(0, jobs, BULK_CHUNK):
        app.enqueue_many([noop.job(number, PADDING) for number in range(first, min(first + BULK_CHUNK, jobs))])
    app.close()


def _copies(url: str, jobs: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Copies of a row that the product stored, with new ids."""
    _enqueue(url, 1)
    app = App(url)
    with app.transaction() as connection:
        cursor = connection.cursor()
        cursor.execute("select * from stagepost_job")
        columns = [column[0] for column in cursor.description]
        row = [json.dumps(value) if isinstance(value, dict | list) else value for value in cursor.fetchone()]
        cursor.execute("delete from stagepost_job")
    app.close()
    place = columns.index("id")
    ids = (f"{number:08x}-0000-7000-8000-000000000000" for number in range(jobs))
    return columns, [(*row[:place], new_id, *row[place + 1 :]) for new_id in ids]


def _verdict(url: str, *, live: int, ended: int) -> str:
    app = App(url)
    with app.transaction() as connection:
        cursor = connection.cursor()
        cursor.execute("select (select count(*) from stagepost_job), (select count(*) from stagepost_job_history)")
        found = tuple(cursor.fetchone())
    app.close()
    return "exact" if found == (live, ended) else f"{found[0]} live and {found[1]} ended, not {live} and {ended}"


def _sqlite(url: str) -> sqlite3.Connection:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    return connection


def _run(connection: sqlite3.Connection, statement: Statement) -> Rows:
    """Run a statement in a separate transaction."""

    def execute(sql: str, parameters: Any) -> Rows:
        return connection.execute(sql, parameters).fetchall()

    connection.execute("begin immediate")
    rows = drive(calls_of(statement, dialect=SQLITE, style=ParameterStyle.NAMED, clock=SystemClock()), execute)
    connection.execute("commit")
    return rows


def _changes(rows: Sequence[tuple[Any, ...]]) -> str:
    """The changes that the finisher would write; id, attempt and owner are columns of the claim."""
    facts = {"state": "completed", "result": "null"}
    return json.dumps([{"id": row[0], "attempt": row[3], "owner": OWNER, **facts} for row in rows])


def _client_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
