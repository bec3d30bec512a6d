"""Classifies errors of drivers by their codes, so that no driver has to be imported, and turns them into our own."""

from __future__ import annotations

import re
import sqlite3
from enum import Enum

__all__ = ["Trouble", "is_of_driver", "mysql_trouble", "postgres_trouble", "sqlite_trouble"]

DRIVERS = {"aiosqlite", "asyncmy", "asyncpg", "django", "MySQLdb", "psycopg", "psycopg2", "pymysql", "sqlalchemy"}
"""Packages of drivers, and of libraries that wrap their errors; sqlite3 is a package as well."""


class Trouble(Enum):
    """What a driver's error means for its transaction."""

    CONFLICT = "conflict"
    """The database rolled the transaction back because of a concurrent one: run it again."""
    CONNECTION = "connection"
    """The connection is lost. If it was committing, the commit may have happened."""
    REFUSED = "refused"
    """A wrong password, a missing right, an unknown database, or one that is read-only: a retry would fail again."""
    SCHEMA = "schema"
    """A table or column does not exist."""
    OTHER = "other"
    """A mistake in our code or the caller's: a retry would fail again."""


def is_of_driver(error: BaseException) -> bool:
    """Whether a driver raised the error, or could not send a value. Anything else is a mistake in our own code."""
    package = type(error).__module__.partition(".")[0]
    return package in DRIVERS or package == "sqlite3" or isinstance(error, OSError | UnicodeError | OverflowError)


UNKNOWN_HOST = re.compile(r"Name or service not known|nodename nor servname|No address associated with hostname")
"""How the system says that a name has no address. A name server that did not answer is another error."""
POSTGRES_REFUSALS = re.compile(
    r"password authentication failed|no password supplied|authentication failed for user|no pg_hba\.conf entry"
    r'|(?:database|role) "[^"]*" does not exist|no such database|permission denied for database'
    r"|is not permitted to log in"
)
"""libpq gives no SQLSTATE for an error while connecting; in another language such an error counts as an outage."""
POSTGRES_MAY_PASS = re.compile(r"refused\b|timeout|timed out|starting up|shutting down|recovery|too many|closed")


def postgres_trouble(error: BaseException) -> Trouble:
    """Classify by SQLSTATE, which psycopg and asyncpg both provide; a lost connection has none."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is None:
        name, text = type(error).__name__, str(error)
        is_refused = POSTGRES_REFUSALS.search(text) or UNKNOWN_HOST.search(text)
        if name == "OperationalError" and is_refused and not POSTGRES_MAY_PASS.search(text):
            return Trouble.REFUSED
        # For a lost connection asyncpg raises InterfaceError, psycopg OperationalError, and the event loop OSError.
        lost = isinstance(error, OSError) or name in {"OperationalError", "ConnectionDoesNotExistError"}
        closed = name == "InterfaceError" and "closed" in text
        return Trouble.CONNECTION if lost or closed else Trouble.OTHER
    if state in {"40001", "40P01", "55P03", "57014"}:  # serialization, deadlock, lock timeout, statement timeout
        return Trouble.CONFLICT
    if state.startswith(("28", "3D000", "42501", "25006")):  # password, unknown database, missing right, read-only
        return Trouble.REFUSED
    if state.startswith(("08", "57P", "53", "25P03")):  # lost, shutting down, out of resources
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
MYSQL_REFUSALS = {
    1044,  # no right to use this database
    1045,  # wrong user or password
    1049,  # unknown database
    1130,  # this host may not connect
    1142,  # missing right on a table
    1143,  # missing right on a column
    1227,  # missing right of administrators
    1251,  # the client lacks the user's way of authentication
    1290,  # read-only server
    1370,  # missing right on a routine
    1698,  # wrong user or password
    1792,  # read-only transaction
    1820,  # the password must be changed first
    1836,  # read-only mode
    1862,  # the password has expired
    3118,  # the account is locked, in MySQL and in MariaDB
    4151,
}
MYSQL_CONNECTION = {
    0,  # PyMySQL: the connection is closed
    1040,  # too many connections
    1053,  # server shutdown in progress
    1158,  # network errors, four kinds
    1159,
    1160,
    1161,
    1317,  # query interrupted
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
    if code in MYSQL_REFUSALS or (code == 2003 and UNKNOWN_HOST.search(str(error))):
        return Trouble.REFUSED
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
SQLITE_REFUSALS = {"SQLITE_AUTH", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_PERM", "SQLITE_READONLY"}
SQLITE_CONNECTION = {"SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_INTERRUPT", "SQLITE_IOERR"}


def sqlite_trouble(error: BaseException) -> Trouble:
    """Classify by the error's name, of which the first two words count, as in SQLITE_BUSY_SNAPSHOT."""
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    if name in SQLITE_CONFLICTS:
        return Trouble.CONFLICT
    if name in SQLITE_REFUSALS:
        return Trouble.REFUSED
    if name in SQLITE_CONNECTION:
        return Trouble.CONNECTION
    if isinstance(error, sqlite3.OperationalError) and "no such" in str(error):
        return Trouble.SCHEMA
    return Trouble.OTHER
