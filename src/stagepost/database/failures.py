"""Turns errors of drivers into our own: what failed, at which database, in words without secrets, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, assert_never
from urllib.parse import unquote

from stagepost.config.urls import masked, safe_cause, unreadable_url, without_secrets
from stagepost.database.dialect import Dialect
from stagepost.database.trouble import Trouble, is_of_driver
from stagepost.errors import (
    ConfigurationError,
    SchemaError,
    StagepostError,
    StoreError,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)

__all__ = ["Address", "Translated", "commit_failure", "connect_failure", "failure_of", "words_of"]

LACKS_RIGHT = {"42501", 1044, 1142, 1143, 1227, 1370}
IS_READ_ONLY = {"25006", 1290, 1792, 1836}
"""SQLSTATEs of PostgreSQL and error numbers of MySQL."""
LONGEST_WORDS = 1000
BAD_OPTIONS = (RuntimeError, TypeError, ValueError)
"""What drivers raise for options of a URL that they do not know, or whose values they cannot use."""
BAD_VALUE = re.compile(r"invalid \w+ value|invalid port number")
"""How libpq rejects the value of an option."""
MIGRATE_COMMAND = "stagepost migrate"
WRONG_URL = "Check the host, the database, the user and the password in the database URL."


@dataclass(frozen=True)
class Address:
    """Where a database is, for messages."""

    kind: str
    """`PostgreSQL`, `MySQL/MariaDB` or `SQLite`."""
    url: str = field(default="", repr=False)
    """With its secrets; empty for SQLite."""
    path: str = ""
    """SQLite's file, or `:memory:`."""

    def __str__(self) -> str:
        if self.url:
            return f"{self.kind} at {masked(self.url)}"
        return f"{self.kind} file {self.path!r}" if self.path != ":memory:" else f"{self.kind} in memory"

    @property
    def user(self) -> str | None:
        """The user's name in the URL, if it has one."""
        credentials, at, _ = self.url.partition("://")[2].rpartition("@")
        return unquote(credentials.partition(":")[0]) or None if at else None


class Translated:
    """Replaces the errors that leave a `with` body; a class, because a generator costs thrice as much."""

    __slots__ = ("_translate",)

    def __init__(self, translate: Callable[[Exception], BaseException]) -> None:
        self._translate = translate

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception):
            failure = self._translate(error)
            if failure is not error:
                raise failure from failure.__cause__


def words_of(error: BaseException, address: Address) -> str:
    """Return what a driver says, without secrets and without the statement that PostgreSQL appends."""
    text = without_secrets(str(error), address.url)
    lines = [line for line in text.splitlines() if not line.startswith("LINE ") and line.strip() != "^"]
    words = " ".join(" ".join(lines).split()).rstrip(".") or type(error).__name__
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}…"


def failure_of(
    what: str, error: BaseException, *, dialect: Dialect, address: Address, migrate_command: str = MIGRATE_COMMAND
) -> BaseException:
    """Return our own error for a driver's during `what`; any other error is ours, or a mistake in code, and stays."""
    if isinstance(error, StagepostError) or not is_of_driver(error):
        return error
    words = words_of(error, address)
    failure: StoreError
    match dialect.trouble(error):
        case Trouble.SCHEMA:
            failure = SchemaError(
                f"{what}: {words}. Run `{migrate_command}` to bring the tables up to date: {address}."
            )
        case Trouble.REFUSED:
            refused = StoreReadOnly if _is_read_only(error) else StoreRefused
            failure = refused(f"{what}: {address} refused it: {words}. {_advice(error, address)}")
        case Trouble.CONNECTION | Trouble.CONFLICT:
            failure = StoreUnavailable(f"{what}: {words}")
        case Trouble.OTHER:
            failure = StoreError(f"{what}: {address} rejected a statement: {words}")
        case _ as unknown:
            assert_never(unknown)
    failure.__cause__ = safe_cause(error, address.url)
    return failure


def connect_failure(error: Exception, *, dialect: Dialect, address: Address) -> BaseException:
    """Return our own error for a connection that could not be opened or configured."""
    failure: StagepostError
    words = words_of(error, address)
    if isinstance(error, StagepostError) or not (is_of_driver(error) or isinstance(error, BAD_OPTIONS)):
        return error
    if address.url and type(error).__name__ == "ProgrammingError" and not _code(error):
        failure = unreadable_url("database URL", address.url, words)
    elif isinstance(error, BAD_OPTIONS) or (address.url and BAD_VALUE.search(words)):
        failure = ConfigurationError(f"{address}: {words}. Check the options in the database URL.")
    elif dialect.trouble(error) is Trouble.REFUSED:
        failure = StoreRefused(f"{address} refused the connection: {words}. {_advice(error, address)}")
    else:
        failure = StoreUnavailable(f"{address} cannot be reached: {words}")
    is_safe = not (isinstance(failure, ConfigurationError) and address.url)
    failure.__cause__ = safe_cause(error, address.url) if is_safe else None
    return failure


def commit_failure(error: Exception, *, dialect: Dialect, address: Address) -> BaseException:
    """Return our own error for a commit of a caller's transaction that failed."""
    if isinstance(error, StagepostError) or dialect.trouble(error) is not Trouble.CONNECTION:
        return failure_of("commit", error, dialect=dialect, address=address)
    failure = StoreUnavailable(
        f"the database did not confirm a commit, so the transaction may or may not be committed: "
        f"{words_of(error, address)}. Check what it wrote before you repeat it. A handler that ends its job in the "
        f"transaction can be repeated safely."
    )
    failure.__cause__ = safe_cause(error, address.url)
    return failure


def _code(error: BaseException) -> Any:
    if error.args and isinstance(error.args[0], int):  # MySQL: its SQLSTATEs say little
        return error.args[0]
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _is_read_only(error: BaseException) -> bool:
    return _code(error) in IS_READ_ONLY or getattr(error, "sqlite_errorname", "").startswith("SQLITE_READONLY")


def _advice(error: BaseException, address: Address) -> str:
    code = _code(error)
    if code in LACKS_RIGHT:
        user = f"user {address.user!r}" if address.user else "this user"
        return (
            f"Grant {user} select, insert, update and delete on Stagepost's tables. To migrate, it must also have the "
            f"right to create tables."
        )
    if code in IS_READ_ONLY:
        return "Connect to the primary server: a replica is read-only, and so is a server during a failover."
    if address.url:
        return WRONG_URL
    return "Check that the file is an SQLite database, and that this user may write to it and to its folder."
