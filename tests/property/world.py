"""The real store beside the model: one empty database per example, whose rows are read back completely."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from stagepost.database.connection import Connection
from stagepost.database.migrate import migrate
from stagepost.database.statement import Operation
from stagepost.database.transaction import run_in
from stagepost.testing.clock import ManualClock
from tests.conformance.bench import patient_store, tables_of
from tests.property.model import Model

COMMON = (
    "id, task_name, queue_name, state, priority, attempts, failures, crashes, max_attempts, unique_key, limit_key, "
    "limit_slots, batch_id, item_key, payload, context, available_at, created_at, started_at, "
)
LIVE = COMMON + "blocked_on, lease_until, locked_by, cancel_requested_at, updated_at"
ENDED = COMMON + "processed_by, result, error, reason, finished_at"
LEDGER = "ledger"
"""A table of the application's; without a unique key, which would hide duplicates."""

Tables = dict[str, tuple[str, Callable[[Any], list[tuple[Any, ...]]]]]
"""The columns that matter of each table, and what the model says they hold."""

TABLES: Tables = {
    "stagepost_job": (LIVE, lambda model: _rows(model.live.values(), LIVE)),
    "stagepost_job_history": (ENDED, lambda model: _rows(model.ended.values(), ENDED)),
    "stagepost_failure": (
        "job_id, attempt, kind, error",
        lambda model: [(*fence, *what) for fence, what in model.failures.items()],
    ),
    "stagepost_unique_key": (
        "unique_key, job_id, held_until",
        lambda model: [(key, *holder) for key, holder in model.held.items()],
    ),
    "stagepost_queue": (
        "name, paused_at, max_running",
        lambda model: [(name, queue.paused_at, queue.max_running) for name, queue in model.queues.items()],
    ),
    "stagepost_audit": ("actor, action, subject, detail", lambda model: list(model.audit)),
    LEDGER: ("job_id, attempt", lambda model: list(model.ledger)),
}


class RolledBack(Exception):
    """Leaves a caller's transaction without committing it."""


@dataclass
class Rows:
    """What the tables hold, by table."""

    tables: dict[str, list[tuple[Any, ...]]]

    def states(self, table: str) -> dict[str, str]:
        """Every job's state, by id."""
        return {row[0]: row[3] for row in self.tables[table]}

    def attempts(self) -> dict[str, int]:
        """Every job's latest attempt, by id."""
        return {row[0]: row[5] for table in ("stagepost_job", "stagepost_job_history") for row in self.tables[table]}

    def restarts(self, job_id: str) -> int:
        """How often an operator is recorded to have restarted a job."""
        audit = self.tables["stagepost_audit"]
        return sum((action, subject) == ("restart", job_id) for _, action, subject, _ in audit)


class World:
    """A migrated database that is emptied for every example."""

    def __init__(self, url: str, *, model: type[Model] = Model, tables: Tables = TABLES) -> None:
        self.model = model
        self.tables = tables
        self.store = patient_store(url, pool_size=2)
        migrate(self.store)
        with self.store.transaction() as connection:
            connection.execute(f"create table {LEDGER} (job_id varchar(36), attempt integer)", {})

    def begin(self) -> Any:
        """Empty every table and stop the clock."""
        self.store.clock = clock = ManualClock()
        with self.store.transaction() as connection:
            for table in {*self.tables, *tables_of(self.store.dialect)}:
                connection.execute(f"delete from {table}", {})
        now = clock.instant()
        assert now is not None
        return self.model(now)

    def advance(self, seconds: float) -> int:
        """Move the clock on; returns the new instant."""
        clock = self.store.clock
        assert isinstance(clock, ManualClock)
        clock.advance(seconds)
        now = clock.instant()
        assert now is not None
        return now

    def run(self, operation: Operation[Any]) -> Any:
        """Run an operation in a separate transaction."""
        return self.store.run(operation)

    def run_in_callers_transaction(
        self, operation: Operation[Any], *, commit: Callable[[Any], bool], effect: Sequence[tuple[str, int]] = ()
    ) -> Any:
        """Run an operation, and the caller's own writes before it, in the caller's transaction."""
        result = None
        try:
            with self.store.transaction() as connection:
                for job_id, attempt in effect:
                    connection.execute(f"insert into {LEDGER} values ('{job_id}', {attempt})", {})
                result = run_in(connection.raw, operation, clock=self.store.clock)
                if not commit(result):
                    raise RolledBack
        except RolledBack:
            pass
        return result

    def rows(self) -> Rows:
        """Read every table whole; nobody writes meanwhile, so no transaction is needed."""
        with self.store.pool.connection() as loan:
            rows = {table: _read(loan.connection, table, columns) for table, (columns, _) in self.tables.items()}
            loan.is_sound = True
        return Rows(rows)

    def expected_rows(self, model: Model) -> Rows:
        """What the tables must hold, if the model is right."""
        return Rows({table: sorted(rows(model), key=repr) for table, (_, rows) in self.tables.items()})

    def close(self) -> None:
        self.store.close()


def _read(connection: Connection, table: str, columns: str) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(f"select {columns} from {table}", {}), key=repr)


def _rows(jobs: Any, columns: str) -> list[tuple[Any, ...]]:
    row = attrgetter(*columns.split(", "))
    return [row(job) for job in jobs]
