"""The demo's ledger, and an audit in plain SQL that does not rely on what workers report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from stagepost.cli.demo.plan import EFFECTIVE, Plan
from stagepost.database.connection import Connection
from stagepost.database.dialect import call_of
from stagepost.database.store import Store
from stagepost.errors import StagepostError
from stagepost.model.identity import new_id

__all__ = ["Audit", "Ledger", "write_line"]

CREATE = (
    "create table if not exists stagepost_demo_run (run varchar(64) primary key, items integer not null)",
    # `line` differs with every write: a primary key of the job alone would hide an effect that was applied twice.
    (
        "create table if not exists stagepost_demo_ledger ("
        "job_id varchar(36) not null, line varchar(36) not null, run varchar(64) not null, item integer not null, "
        "attempt integer not null, primary key (job_id, line))"
    ),
)

QUERIES = {
    "done": "select count(*) from stagepost_job_history where queue_name = :run and state = 'completed'",
    "dead": (
        "select count(*) from stagepost_job_history where queue_name = :run and state in ('failed', 'dead_letter')"
    ),
    "attempts": (
        "select coalesce(sum(attempts), 0) from ("
        "select attempts from stagepost_job_history where queue_name = :run union all "
        "select attempts from stagepost_job where queue_name = :run) as jobs"
    ),
    "effects": "select count(*) from stagepost_demo_ledger where run = :run",
    "twice": (
        "select count(*) from (select job_id from stagepost_demo_ledger where run = :run "
        "group by job_id having count(*) > 1) as doubled"
    ),
    "missing": (
        "select count(*) from stagepost_job_history as job "
        "left join stagepost_demo_ledger as line on line.job_id = cast(job.id as char(36)) "
        "where job.queue_name = :run and job.state = 'completed' and job.task_name in (:tasks) "
        "and line.job_id is null"
    ),
    "earned": (
        "select count(*) from stagepost_job_history as job "
        "join stagepost_demo_ledger as line on line.job_id = cast(job.id as char(36)) "
        "where job.queue_name = :run and job.state = 'completed' and job.attempts = line.attempt"
    ),
    "failed_attempts": (
        "select count(*) from stagepost_failure as failure "
        "join stagepost_job_history as job on job.id = failure.job_id "
        "where job.queue_name = :run and failure.kind <> 'crashed'"
    ),
    "rescued": (
        "select count(*) from stagepost_failure as failure "
        "join stagepost_job_history as job on job.id = failure.job_id "
        "where job.queue_name = :run and failure.kind = 'crashed'"
    ),
}


LEASED = (
    "select locked_by, count(*) from stagepost_job where queue_name = :run and state = 'running' group by locked_by"
)
CRASHES = (
    "select coalesce(sum(crashes), 0) from ("
    "select crashes from stagepost_job where queue_name = :run and crashes > 0 union all "
    "select crashes from stagepost_job_history where queue_name = :run and crashes > 0) as jobs"
)


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of one demo run, counted in the tables."""

    items: int
    done: int
    dead: int
    dead_planned: int
    effects: int
    effects_planned: int
    twice: int
    """Jobs whose effect was applied more than once."""
    missing: int
    """Completed jobs whose effect was never applied."""
    earned: int
    """Effects that were applied by the attempt that completed the job."""
    attempts: int
    failed_attempts: int
    rescued: int

    @property
    def lost(self) -> int:
        """Jobs that neither completed nor became dead letters."""
        return self.items - self.done - self.dead

    @property
    def unearned(self) -> int:
        """Effects that were applied by attempts that did not complete their job."""
        return self.effects - self.earned

    @property
    def is_sound(self) -> bool:
        """Whether every total matches the plan."""
        return (
            self.lost == self.twice == self.missing == self.unearned == 0
            and self.dead == self.dead_planned
            and self.effects == self.effects_planned
        )


@dataclass(frozen=True)
class Ledger:
    """The ledger of one demo run."""

    store: Store
    run: str

    def open(self, items: int) -> None:
        """Create the tables, and record how many items the run has."""
        with self.store.transaction() as connection:
            for statement in CREATE:
                connection.execute(statement, {})
            self._execute(connection, "insert into stagepost_demo_run (run, items) values (:run, :items)", items=items)

    def audit(self) -> Audit:
        """Count everything in one transaction."""
        with self.store.transaction() as connection:
            rows = self._execute(connection, "select items from stagepost_demo_run where run = :run")
            if not rows:
                raise StagepostError(
                    f"this database has no demo run {self.run!r}. Use the database and run name that the demo printed."
                )
            plan = Plan(rows[0][0])
            counted = {name: int(self._execute(connection, sql)[0][0]) for name, sql in QUERIES.items()}
        return Audit(items=plan.items, dead_planned=plan.dead, effects_planned=plan.effects, **counted)

    def crashes(self) -> int:
        """Count attempts so far whose worker died, whether or not their job has ended."""
        return int(self._read(CRASHES)[0][0])

    def leased(self) -> dict[str, int]:
        """Count the jobs that each worker has leased."""
        return {owner: number for owner, number in self._read(LEASED)}  # noqa: C416 - rows are tuples of anything

    def _read(self, sql: str) -> list[tuple[Any, ...]]:
        with self.store.pool.connection() as loan:  # no transaction: it would block writers on SQLite
            rows = self._execute(loan.connection, sql)
            loan.is_sound = True
            return rows

    def _execute(self, connection: Connection, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        sql = sql.replace(":tasks", ", ".join(f"'{kind}'" for kind in sorted(EFFECTIVE)))
        parameters["run"] = self.run
        call = call_of(sql, parameters, self.store.database.style)
        return connection.execute(call.sql, call.parameters)


def write_line(tx: Any, *, run: str, item: int, job_id: str, attempt: int, mark: str) -> None:
    """Insert a line in the caller's transaction; `mark` is the driver's parameter placeholder."""
    marks = ", ".join([mark] * 5)
    sql = f"insert into stagepost_demo_ledger (job_id, line, run, item, attempt) values ({marks})"  # noqa: S608
    cursor = tx.cursor()
    cursor.execute(sql, (job_id, new_id(), run, item, attempt))
    cursor.close()
