"""Classifies errors of drivers by their codes, so that no driver has to be imported."""

from __future__ import annotations

import sqlite3
from enum import Enum

from stagepost.errors import SchemaError

__all__ = ["Trouble", "mysql_trouble", "postgres_trouble", "schema_error", "sqlite_trouble"]


class Trouble(Enum):
    """What a driver's error means for its transaction."""

    CONFLICT = "conflict"
    """The database rolled the transaction back because of a concurrent one: run it again."""
    CONNECTION = "connection"
    """The connection is lost. If it was committing, the commit may have happened."""
    SCHEMA = "schema"
    """A table or column does not exist."""
    OTHER = "other"
    """A mistake in our code or the caller's: a retry would fail again."""


def schema_error(operation: str, error: BaseException) -> SchemaError:
    """Build the error for a table or column that does not exist."""
    what = str(error).splitlines()[0]  # PostgreSQL appends the statement, with an arrow
    return SchemaError(f"{operation}: {what}. Run `stagepost migrate` to bring the tables of this database up to date.")


def postgres_trouble(error: BaseException) -> Trouble:
    """Classify by SQLSTATE, which psycopg and asyncpg both provide; a lost connection has none."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        name = type(error).__name__
        # For a lost connection asyncpg raises InterfaceError, psycopg OperationalError, and the event loop OSError.
        lost = isinstance(error, OSError) or name in {"OperationalError", "ConnectionDoesNotExistError"}
        closed = name == "InterfaceError" and "closed" in str(error)
        return Trouble.CONNECTION if lost or closed else Trouble.OTHER
    if state in {"40001", "40P01", "55P03", "57014"}:  # serialization, deadlock, lock timeout, statement timeout
        return Trouble.CONFLICT
    if state.startswith(("08", "57P", "53", "25P03", "25006")):  # lost, shutting down, out of resources, read-only
        return Trouble.CONNECTION
    if state in {"42P01", "42703", "3F000"}:
        return Trouble.SCHEMA
    if state == "23505" and getattr(getattr(error, "diag", None), "constraint_name", None) == "stagepost_job_pkey":
        return Trouble.CONFLICT  # concurrent requests for the same jobs: the retry finds them
    return Trouble.OTHER


MYSQL_CONFLICTS = {
    1020,  # record has changed since last read (innodb_snapshot_isolation)
    1205,  # lock wait timeout
    1213,  # deadlock
    3572,  # lock not available (NOWAIT)
}
MYSQL_CONNECTION = {
    0,  # PyMySQL: the connection is closed
    1040,  # too many connections
    1053,  # server shutdown in progress
    1158,  # network errors, four kinds
    1159,
    1160,
    1161,
    1290,  # read-only server
    1317,  # query interrupted
    1836,  # read-only mode
    1927,  # connection was killed
    2002,  # cannot connect
    2003,
    2006,  # server has gone away
    2013,  # lost connection during query
    2014,  # packets out of order
    2055,
    4031,  # disconnected because of inactivity
}
MYSQL_SCHEMA = {1054, 1146}
MYSQL_DUPLICATE = 1062
MYSQL_KEYS_OF_JOBS = ("for key 'PRIMARY'", "for key 'stagepost_job.PRIMARY'")
"""How the message ends in MariaDB, which does not name the table, and in MySQL."""


def mysql_trouble(error: BaseException) -> Trouble:
    """Classify by error number. A lock wait timeout (1205) undoes only one statement, so the caller must roll back."""
    code = error.args[0] if error.args else None
    if code in MYSQL_CONFLICTS:
        return Trouble.CONFLICT
    if code in MYSQL_CONNECTION or isinstance(error, OSError):
        return Trouble.CONNECTION
    if type(error).__name__ == "InterfaceError":
        return Trouble.CONNECTION
    if code in MYSQL_SCHEMA:
        return Trouble.SCHEMA
    if code == MYSQL_DUPLICATE and str(error.args[-1]).endswith(MYSQL_KEYS_OF_JOBS):
        return Trouble.CONFLICT  # concurrent requests for the same job: the retry finds it
    return Trouble.OTHER


SQLITE_CONFLICTS = {"SQLITE_BUSY", "SQLITE_LOCKED"}
SQLITE_CONNECTION = {"SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_INTERRUPT", "SQLITE_IOERR", "SQLITE_READONLY"}


def sqlite_trouble(error: BaseException) -> Trouble:
    """Classify by the error's name, of which the first two words count, as in SQLITE_BUSY_SNAPSHOT."""
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    if name in SQLITE_CONFLICTS:
        return Trouble.CONFLICT
    if name in SQLITE_CONNECTION:
        return Trouble.CONNECTION
    if isinstance(error, sqlite3.OperationalError) and "no such" in str(error):
        return Trouble.SCHEMA
    return Trouble.OTHER
