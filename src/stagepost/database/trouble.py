"""What an error of a driver means, read off its codes so that no driver need be imported."""

from __future__ import annotations

import sqlite3
from enum import Enum

from stagepost.errors import SchemaError

__all__ = ["Trouble", "mysql_trouble", "postgres_trouble", "schema_error", "sqlite_trouble"]


class Trouble(Enum):
    """What an error of a driver means for the transaction it came from."""

    CONFLICT = "conflict"
    """Rolled back by the database because of others: run the whole transaction again."""
    CONNECTION = "connection"
    """The connection is gone; what was being committed may be committed."""
    SCHEMA = "schema"
    """A table or column is not there."""
    OTHER = "other"
    """Ours or the caller's mistake: repeating it changes nothing."""


def schema_error(operation: str, error: BaseException) -> SchemaError:
    """Say what to do about a table or column that is not there."""
    what = str(error).splitlines()[0]  # PostgreSQL adds the statement with an arrow
    return SchemaError(f"{operation}: {what}. Run `stagepost migrate` to bring the tables of this database up to date.")


def postgres_trouble(error: BaseException) -> Trouble:
    """Read the SQLSTATE, which psycopg and asyncpg both carry; a connection that died has none."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        name = type(error).__name__
        # asyncpg raises InterfaceError, psycopg OperationalError, the loop OSError, for a connection that is gone.
        lost = isinstance(error, OSError) or name in {"OperationalError", "ConnectionDoesNotExistError"}
        closed = name == "InterfaceError" and "closed" in str(error)
        return Trouble.CONNECTION if lost or closed else Trouble.OTHER
    if state in {"40001", "40P01", "55P03", "57014"}:  # serialization, deadlock, lock timeout, statement timeout
        return Trouble.CONFLICT
    if state.startswith(("08", "57P", "53", "25P03", "25006")):  # gone, shutting down, out of room, read-only
        return Trouble.CONNECTION
    if state in {"42P01", "42703", "3F000"}:
        return Trouble.SCHEMA
    if state == "23505" and getattr(getattr(error, "diag", None), "constraint_name", None) == "stagepost_job_pkey":
        return Trouble.CONFLICT  # two requests for the same jobs at once: once more, and they are known
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
"""How the message ends in MariaDB, which names no table, and in MySQL."""


def mysql_trouble(error: BaseException) -> Trouble:
    """Read the error number; a lock wait timeout (1205) undid one statement only, so the caller must roll back."""
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
        return Trouble.CONFLICT  # two requests for the same job at once: once more, and it is known
    return Trouble.OTHER


SQLITE_CONFLICTS = {"SQLITE_BUSY", "SQLITE_LOCKED"}
SQLITE_CONNECTION = {"SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_INTERRUPT", "SQLITE_IOERR", "SQLITE_READONLY"}


def sqlite_trouble(error: BaseException) -> Trouble:
    """Read the error's name; extended names such as SQLITE_BUSY_SNAPSHOT count as their first two words."""
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    if name in SQLITE_CONFLICTS:
        return Trouble.CONFLICT
    if name in SQLITE_CONNECTION:
        return Trouble.CONNECTION
    if isinstance(error, sqlite3.OperationalError) and "no such" in str(error):
        return Trouble.SCHEMA
    return Trouble.OTHER
