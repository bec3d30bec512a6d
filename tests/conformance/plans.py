"""How a database would run a statement: which tables it would read from end to end."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from stagepost.database.dialect import POSTGRES, ParameterStyle, arranged
from stagepost.database.statement import Rows, Statement
from tests.conformance.bench import Bench, filled_tables, tables_of

PRIMARY_KEYS = {
    "sqlite": r"sqlite_autoindex_stagepost_job(_history)?_1",
    "postgres": r"stagepost_job(_history)?_pkey",
    "mysql": r"\bPRIMARY\b",
}
MYSQL_INDEXES = {
    "stagepost_job_due": "(stagepost_job_time|optimized away)",
    "stagepost_job_lease": "stagepost_job_time",
    "stagepost_job_sent": "stagepost_job_claim",
}
"""Indexes that replace the partial indexes of other databases; a statement may read only the first entry of one."""
SORTS = {"sqlite": "TEMP B-TREE", "postgres": "Sort", "mysql": "filesort"}
"""How databases report that they sort rows for which no index gives the order."""
ANALYZE = {"sqlite": "analyze", "postgres": "vacuum analyze", "mysql": "analyze table"}


@dataclass(frozen=True)
class Plan:
    """What the database says it would do, and the tables it would read whole."""

    text: str
    read_whole: frozenset[str]


def plan_of(store: Bench, statement: Statement, *, small_tables: bool = True) -> Plan:
    """Explain every text of a statement, after `analyze`.

    PostgreSQL prefers to read small tables whole: unless the test's are large, it does so only if no index helps. That
    is how our own sessions ask for it; where tables are large enough, the plan is the one that others' get as well.
    """
    dialect, style = store.dialect, store.database.store.database.style
    given = {**statement.parameters, "now": store.now, "selected": '["none"]'}
    lines: list[str] = []
    read_whole: set[str] = set()
    with store.transaction() as connection:
        if dialect.name == "postgres" and not small_tables:
            connection.execute("set local enable_seqscan = on", {})
        given_names = statement.parameters.keys()
        for text in dialect.script(statement.name, style, own_clock=True, given=given_names).texts:
            prefix = "explain query plan " if dialect.name == "sqlite" else "explain "
            rows = connection.execute(prefix + text.sql, arranged(text, given, style))
            lines += [" ".join(str(value) for value in row) for row in rows]
            read_whole |= SCANNED[dialect.name](rows)
    return Plan("\n".join(lines), frozenset(read_whole))


def kept_plan_of(store: Bench, statement: Statement) -> Plan:
    """Explain a prepared statement that ran often: PostgreSQL may keep a plan that does not look at the parameters."""
    given_names = statement.parameters.keys()
    [text] = POSTGRES.script(statement.name, ParameterStyle.DOLLAR, own_clock=True, given=given_names).texts
    given = {**statement.parameters, "now": store.now}
    values = ", ".join(f"'{given[name]}'" for name in text.names)
    with store.transaction() as connection:
        connection.execute(f"prepare kept as {text.sql}", ())
        plans = [connection.execute(f"explain execute kept{values and f'({values})'}", ()) for _ in range(8)]
        connection.execute("deallocate kept", ())
    plan = "\n".join(line for (line,) in plans[-1])
    return Plan(plan, frozenset(re.findall(r"Seq Scan on (stagepost_job\w*)", plan)))


def goes_through(index: str, plan: Plan, store: Bench) -> bool:
    """Whether a plan uses an index, by its name or as `primary key`."""
    pattern = index.replace("primary key", PRIMARY_KEYS[store.dialect.name])
    for name, stand_in in MYSQL_INDEXES.items() if store.dialect.name == "mysql" else ():
        pattern = pattern.replace(name, stand_in)
    return bool(re.search(pattern, plan.text))


def analyze(store: Bench, *tables: str) -> None:
    """Let the database count what the tables hold, or all tables, so that its plans are those of a table that size.

    For PostgreSQL it matters, too, how much of a table has been vacuumed. InnoDB counts what was deleted until it is
    purged, which on a busy machine may take seconds: tables that hold anything are written again without it.
    """
    is_mysql = store.dialect.name == "mysql"
    filled = {str(name) for (name,) in store.rows(filled_tables(store.dialect))} if is_mysql else set()
    for table in tables or tables_of(store.dialect):
        store.rows(f"{'optimize table' if table in filled else ANALYZE[store.dialect.name]} {table}")


def copy_to_history(store: Bench) -> None:
    """Copy all live jobs to history."""
    columns = (
        "id, queue_name, task_name, {state}, priority, available_at, attempts, failures, crashes, max_attempts, "
        "payload, created_at, {finished}"
    )
    store.rows(
        f"insert into stagepost_job_history ({columns.format(state='state', finished='finished_at')}) "
        f"select {columns.format(state=repr('completed'), finished='updated_at')} from stagepost_job"
    )


@contextlib.contextmanager
def left_alone(store: Bench) -> Iterator[None]:
    """Let all tables be empty, with nothing left of what others deleted, and looked after only when the test says so.

    By itself a server vacuums and counts at moments of its own choice, and keeps deleted rows while anybody may see
    them. Plans depend on that, even on tables that a statement hardly reads.
    """
    quiet, usual = LOOKED_AFTER[store.dialect.name]
    tables = tables_of(store.dialect)
    for table in tables if quiet else ():
        store.rows(f"alter table {table} {quiet}")
    if store.dialect.name == "postgres":
        store.rows(f"truncate {', '.join(tables)}")
    try:
        yield
    finally:
        for table in tables if usual else ():
            store.rows(f"alter table {table} {usual}")


LOOKED_AFTER = {
    "sqlite": ("", ""),
    "postgres": ("set (autovacuum_enabled = off)", "reset (autovacuum_enabled)"),
    "mysql": ("stats_auto_recalc = 0", "stats_auto_recalc = default"),
}


def _sqlite_scans(rows: Rows) -> set[str]:
    details = [str(row[3]) for row in rows]
    return {match[1] for detail in details if (match := re.fullmatch(r"SCAN (\w+)", detail))}


def _postgres_scans(rows: Rows) -> set[str]:
    return {match[1] for (line,) in rows if (match := re.search(r"Seq Scan on (\w+)", str(line)))}


def _mysql_scans(rows: Rows) -> set[str]:
    # select_type, table, type; an INSERT is listed as ALL and reads nothing.
    return {str(row[2]) for row in rows if row[3] in {"ALL", "index"} and row[1] != "INSERT"}


SCANNED = {"sqlite": _sqlite_scans, "postgres": _postgres_scans, "mysql": _mysql_scans}
