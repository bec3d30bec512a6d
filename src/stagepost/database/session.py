"""How every session of ours is configured, whether its driver blocks or is asynchronous."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from stagepost.database.dialect import MYSQL
from stagepost.errors import ConfigurationError

__all__ = [
    "CALL_SECONDS",
    "CONNECT_SECONDS",
    "LOCK_SECONDS",
    "configure",
    "configure_async",
    "driver",
    "mysql_configuration",
    "postgres_begin",
    "postgres_configuration",
    "postgres_options",
]

T = TypeVar("T")

CONNECT_SECONDS = 10
CALL_SECONDS = 60
"""Time limit for the statements of handlers; our own statements have `Deadlines`."""
LOCK_SECONDS = 10
IDLE_SECONDS = 60
"""How long a process that was stopped inside a transaction keeps its locks."""
POSTGRES_LIMITS = (
    f"set {{scope}} lock_timeout = '{LOCK_SECONDS}s'; "
    f"set {{scope}} idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
)
POSTGRES_PLANS = "set session enable_seqscan = off; set session jit = off"
"""Our statements find rows by an index. Otherwise a plan made for a small table would scan it, and PostgreSQL would
keep that plan when the table has a million jobs. With sequential scans off, a statement that has no index is estimated
as so expensive that PostgreSQL would compile it every time; so `jit` is off as well."""

Configuration = Generator[str, Any, T]
"""Yields the statements that configure a new session, and receives the first row of each, or None."""


def postgres_options(url: str) -> dict[str, Any]:
    """Choose libpq's options so that a dead peer is noticed; those in the URL are left as they are."""
    given = dict(parse_qsl(urlsplit(url).query))
    defaults = {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "tcp_user_timeout": 15_000,
        "application_name": "stagepost",
    }
    return {name: value for name, value in defaults.items() if name not in given}


def postgres_configuration(backend_pid: int, *, for_handlers: bool) -> Configuration[bool]:
    """Configure a session of PostgreSQL; returns whether a pooler answered in the server's place."""
    [session] = yield "select pg_backend_pid()"
    if session != backend_pid:
        # Its sessions may change with every transaction: settings of ours would stay behind for others.
        return True
    yield POSTGRES_LIMITS.format(scope="session")
    yield "set session characteristics as transaction isolation level read committed"
    if not for_handlers:
        yield POSTGRES_PLANS
    return False


def postgres_begin(*, is_pooled: bool) -> str:
    """Write the statements that open a transaction."""
    limits = POSTGRES_LIMITS.format(scope="local") if is_pooled else ""
    return f"begin isolation level read committed; {limits}"


def mysql_configuration(version: str) -> Configuration[int]:
    """Configure a session of MySQL or MariaDB; returns how many bytes a statement may have."""
    yield f"set session innodb_lock_wait_timeout = {LOCK_SECONDS}, sql_mode = 'STRICT_ALL_TABLES'"
    yield "set session transaction isolation level read committed"
    if "mariadb" in version.lower():  # MySQL has no such limit
        yield f"set session idle_transaction_timeout = {IDLE_SECONDS}"
    [most_bytes] = yield f"select {MYSQL.longest_statement}"  # of this session: it stays as it is now
    return int(most_bytes)


def configure(configuration: Configuration[T], execute: Callable[[str], Any]) -> T:
    """Run the statements of a configuration on a blocking connection; `execute` returns the first row, if any."""
    row: Any = None
    while True:
        try:
            statement = configuration.send(row)
        except StopIteration as end:
            result: T = end.value
            return result
        row = execute(statement)


async def configure_async(configuration: Configuration[T], execute: Callable[[str], Awaitable[Any]]) -> T:
    """Run the statements of a configuration on an asynchronous connection."""
    row: Any = None
    while True:
        try:
            statement = configuration.send(row)
        except StopIteration as end:
            result: T = end.value
            return result
        row = await execute(statement)


def driver(name: str, *, extra: str) -> Any:
    """Import a driver, or say what to install."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ConfigurationError(f"the driver {package} is not installed: pip install 'stagepost[{extra}]'") from error
