"""The databases that faults are tried on, each with a ledger beside Stagepost's tables."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql

from stagepost.database import Store
from stagepost.database.migrate import migrate, migrations_of
from tests.services import mariadb

NAMES = ("sqlite", "postgres", "mariadb")
SERVERS = ("postgres", "mariadb")
CREATE_LEDGER = (
    # No unique key: it would hide what must not happen.
    "create table ledger (job_id char(36) not null, attempt integer not null, "
    "effect varchar(64) not null, at bigint not null)"
)

Rows = list[tuple[Any, ...]]


class Backend:
    """One migrated database, inspected through a connection that no fault affects."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self._lock = threading.Lock()
        with contextlib.closing(Store.at(url)) as store:
            migrate(store)
            self.dialect = store.dialect
        self._connection = connect(url)
        self.rows(CREATE_LEDGER)
        self._tables = ["ledger", *_tables_of(self)]

    def rows(self, sql: str, **parameters: Any) -> Rows:
        """Run one statement, committed at once; parameters are written `:name` on every database."""
        return list(self.each_row(sql, **parameters))

    def each_row(self, sql: str, **parameters: Any) -> Iterator[tuple[Any, ...]]:
        """As `rows`, but streams the rows if the driver can; nobody else may use the connection meanwhile."""
        with self._lock:
            yield from _each_row(self._connection, sql.replace(":now", self.dialect.now), parameters)

    def empty(self) -> None:
        """Delete all rows, which is much faster than a new database."""
        for table in self._tables:
            self.rows(f"delete from {table}")

    def open_sessions(self) -> Rows:
        """Sessions of this database but ours: (id, is a transaction open, last statement); SQLite has none."""
        return self.rows(SESSIONS[self.name]) if self.name in SESSIONS else []

    def end_session(self, session_id: int) -> None:
        """Kill a session as an operator would."""
        if self.name == "postgres":
            self.rows("select pg_terminate_backend(cast(:id as integer))", id=session_id)
        else:
            with contextlib.suppress(pymysql.MySQLError):  # it may have ended by itself
                self.rows(f"kill {int(session_id)}")

    def reconnect(self) -> None:
        """Open a new connection after the server was down."""
        with self._lock:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = connect(self.url)

    def close(self) -> None:
        self._connection.close()


SESSIONS = {
    "postgres": "select pid, state like 'idle in transaction%%' and state_change < clock_timestamp() - "
    "interval '200 milliseconds', query from pg_stat_activity "
    "where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'",
    "mariadb": "select p.id, t.trx_id is not null and p.command = 'Sleep', "
    "concat_ws(' ', p.info, p.time_ms, t.trx_started, t.trx_rows_locked, t.trx_rows_modified) "
    "from information_schema.processlist as p "
    "left join information_schema.innodb_trx as t on t.trx_mysql_thread_id = p.id "
    "where p.db = database() and p.id <> connection_id()",
}


def connect(url: str) -> Any:
    """Open a driver's connection that commits every statement."""
    match urlsplit(url).scheme:
        case "sqlite":
            path = url.partition(":///")[2]
            return sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        case "postgresql":
            return psycopg.connect(url, autocommit=True)
        case _:
            return mariadb.connect(url)


def execute(connection: Any, sql: str, parameters: dict[str, Any] | None = None) -> Rows:
    """Run a statement with `:name` parameters on any driver's blocking connection."""
    return list(_each_row(connection, sql, parameters or {}))


def _each_row(connection: Any, sql: str, parameters: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    if type(connection).__module__ == "sqlite3":
        yield from connection.execute(sql.replace("%%", "%"), parameters)
        return
    text = re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", sql)
    with connection.cursor() as cursor:
        cursor.execute(text, parameters)
        if cursor.description:
            yield from cursor


@contextlib.contextmanager
def opened(name: str, url: str) -> Iterator[Backend]:
    backend = Backend(name, url)
    try:
        yield backend
    finally:
        backend.close()


def sqlite_url(folder: Path, name: str = "fault.db") -> str:
    return f"sqlite:///{folder / name}"


def _tables_of(backend: Backend) -> list[str]:
    sources = [migration.sql for migration in migrations_of(backend.dialect)]
    return [table for sql in sources for table in re.findall(r"^create table (\w+)", sql, re.MULTILINE)]
