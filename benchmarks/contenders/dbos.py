"""DBOS on PostgreSQL: workflows without steps on a queue."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from benchmarks.kit.contender import LONG_SECONDS, NAP_SECONDS, PADDING, Contender, Unknown, variable
from benchmarks.kit.inspector import Inspector
from benchmarks.kit.ledger import note
from benchmarks.kit.protocol import URL_VARIABLE

QUEUE = "bench"
KEYED_QUEUE = "bench-keyed"
CONCURRENCY = 500
POLL_SECONDS = 0.1
CONNECTIONS = 20
STOP_SECONDS = 20


@DBOS.workflow(name="noop")
def noop(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


@DBOS.workflow(name="nap")
def nap(number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    time.sleep(NAP_SECONDS)


@DBOS.workflow(name="long")
def long(number: int, padding: str) -> None:
    """Sleep for seconds."""
    note(number)
    time.sleep(LONG_SECONDS)


class DbosContender(Contender):
    """Its queue, processed by processes that launched DBOS."""

    packages = ("dbos", "psycopg", "SQLAlchemy")
    fate_of_unknown = "an error in the log; kept as pending"
    why_no_rate = "it limits the rate of a queue or of its partitions, not of a task"
    has_bulk = False

    def settings(self) -> Mapping[str, str]:
        """The configuration and promises, for the report."""
        return {
            "worker": f"DBOS.launch; worker_concurrency {CONCURRENCY}, polling every {POLL_SECONDS} s, "
            f"{CONNECTIONS} connections",
            "bulk": "DBOSClient.enqueue_in_transaction, 1,000 jobs a transaction",
            "promise": "at least once, steps recorded; ended workflows kept",
        }

    def prepare(self) -> None:
        """Let it migrate and register its queue."""
        _launch(CONCURRENCY)
        DBOS.destroy()

    def open(self) -> None:
        """Connect."""
        self._engine = sa.create_engine(_sqlalchemy_url(self.url))
        self._client = DBOSClient(system_database_url=self.url)
        self._inspector = Inspector(self.url)

    def close(self) -> None:
        """Disconnect."""
        self._client.destroy()
        self._engine.dispose()
        self._inspector.close()

    def enqueue(self, number: int) -> None:
        """Enqueue one workflow."""
        self._client.enqueue(_options("noop"), number, PADDING)

    def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueue in transactions of a thousand; it has no statement for many."""
        self._enqueue_many("noop", numbers)

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Enqueue in transactions of a thousand."""
        self._enqueue_many("nap", numbers)

    def enqueue_long(self, numbers: Sequence[int]) -> None:
        """Enqueue in transactions of a thousand."""
        self._enqueue_many("long", numbers)

    def enqueue_keyed(self, numbers: Sequence[int], *, keys: int) -> None:
        """Enqueue in transactions of a thousand, on a queue with partition_concurrency=1."""
        for first in range(0, len(numbers), 1000):
            with self._engine.begin() as connection:
                for number in numbers[first : first + 1000]:
                    options: EnqueueOptions = {
                        **_options("noop"),
                        "queue_name": KEYED_QUEUE,
                        "queue_partition_key": str(number % keys),
                    }
                    self._client.enqueue_in_transaction(connection, options, number, PADDING)

    def enqueue_unknown(self, jobs: int) -> None:
        """Enqueue in transactions of a thousand."""
        self._enqueue_many("unknown", range(jobs))

    def unknown(self) -> Unknown:
        """Count them by status."""
        query = "select count(*) from dbos.workflow_status where name = 'unknown' and status {} ('ENQUEUED', 'PENDING')"
        return Unknown(self._inspector.count(query.format("in")), self._inspector.count(query.format("not in")))

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One program per process."""
        worker = "from benchmarks.contenders.dbos import work; work()"
        return [[sys.executable, "-c", worker, str(concurrency or CONCURRENCY)]] * processes

    def left(self) -> int:
        """Workflows that are enqueued or pending."""
        return self._inspector.count(
            "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')"
        )

    def ended(self) -> int:
        """Workflows that succeeded."""
        return self._inspector.count("select count(*) from dbos.workflow_status where status = 'SUCCESS'")

    def fill_history(self, rows: int) -> None:
        """Multiply its succeeded workflows."""
        new_id = "'00000000-' || serial"
        self._inspector.multiply(
            "dbos.workflow_status", where="status = 'SUCCESS'", rows=rows, replaced={"workflow_uuid": new_id}
        )

    def _enqueue_many(self, name: str, numbers: Sequence[int]) -> None:
        for first in range(0, len(numbers), 1000):
            with self._engine.begin() as connection:
                for number in numbers[first : first + 1000]:
                    self._client.enqueue_in_transaction(connection, _options(name), number, PADDING)


def work() -> None:
    """Be a worker until told to stop."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    _launch(int(sys.argv[1]))
    stopping.wait()
    DBOS.destroy(workflow_completion_timeout_sec=STOP_SECONDS)


def _launch(concurrency: int) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": variable(URL_VARIABLE),
        "sys_db_pool_size": CONNECTIONS,
        "application_version": "bench",
        "executor_id": f"process-{os.getpid()}",
        "log_level": "WARNING",
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(
        QUEUE, worker_concurrency=concurrency, polling_interval_sec=POLL_SECONDS, on_conflict="always_update"
    )
    DBOS.register_queue(
        KEYED_QUEUE,
        worker_concurrency=concurrency,
        partition_concurrency=1,
        polling_interval_sec=POLL_SECONDS,
        on_conflict="always_update",
    )


def _options(name: str) -> EnqueueOptions:
    return {"workflow_name": name, "queue_name": QUEUE, "app_version": "bench"}


def _sqlalchemy_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


CONTENDER = DbosContender
