"""Our own SQLite connections: a file, or a database in memory."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from stagepost.clock import monotonic
from stagepost.database.dialect import SQLITE, Dialect, ParameterStyle
from stagepost.database.failures import Address, connect_failure
from stagepost.database.opening import closed_on_failure
from stagepost.database.statement import Row, Rows
from stagepost.errors import ConfigurationError, StoreRefused, StoreUnavailable

__all__ = ["SqliteConnection", "SqliteDatabase", "sqlite_path"]

LOCK_SECONDS = 10
"""How long a statement waits for the lock of another process."""
REFUSED_SECONDS = 0.01
"""The pause before the next try to open a new file that other processes are opening at the same time."""


@dataclass
class SqliteDatabase:
    """A file, or a database in memory that lives as long as its only connection."""

    path: str
    dialect: Dialect = SQLITE
    style: ParameterStyle = ParameterStyle.NAMED
    shares_one_connection: bool = True

    @property
    def is_memory(self) -> bool:
        return self.path == ":memory:"

    @property
    def address(self) -> Address:
        return Address("SQLite", path=self.path)

    def connect(self) -> SqliteConnection:
        try:
            raw = sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
            with closed_on_failure(raw):
                _write_ahead(raw)
                raw.execute("pragma synchronous = full")
        except sqlite3.Error as error:
            raise self._failure(error) from error
        return SqliteConnection(raw)

    def _failure(self, error: sqlite3.Error) -> BaseException:
        if _is_busy(error):
            return StoreUnavailable(f"{self.address} cannot be opened: {error}. Another process has it locked.")
        if Path(self.path).is_dir():
            return StoreRefused(f"{self.address} cannot be opened: it is a folder. Name a file in it.")
        if not os.access(Path(self.path).parent, os.W_OK | os.X_OK):
            return StoreRefused(
                f"{self.address} cannot be opened: {error}. Check that its folder exists and is writable."
            )
        return connect_failure(error, dialect=self.dialect, address=self.address)


@dataclass
class SqliteConnection:
    """A connection in autocommit mode, so that transactions start only where `begin` is called."""

    raw: sqlite3.Connection
    is_pooled: bool = False
    most_bytes: int | None = None

    def execute(self, sql: str, parameters: Any) -> Rows:
        return self.raw.execute(sql, parameters).fetchall()

    def load(self, sql: str, rows: Iterable[Row]) -> int:
        return self.raw.executemany(sql, ((*own, *shared) for own, shared in rows)).rowcount

    def begin(self, *, read_only: bool = False) -> None:
        # Immediate, because a transaction that reads first and writes later would fail instead of waiting.
        self.raw.execute("begin" if read_only else "begin immediate")

    def commit(self) -> None:
        self.raw.execute("commit")

    def rollback(self) -> None:
        if self.raw.in_transaction:
            self.raw.execute("rollback")

    def close(self) -> None:
        self.raw.close()

    def abort(self) -> None:
        self.raw.interrupt()


def sqlite_path(url: str, folder: Path) -> str:
    """Return the path that a URL names, or `:memory:`; a relative path starts in `folder`."""
    rest = url.partition("://")[2]
    path = unquote(rest.partition("?")[0])
    if path in {"", "/", "/:memory:", ":memory:"}:
        return ":memory:"
    if not path.startswith("/"):
        raise ConfigurationError(
            f"database URL {url!r}: write sqlite:///file.db for a relative path, or sqlite:////folder/file.db for an "
            f"absolute one."
        )
    if "\0" in path:
        raise ConfigurationError(f"database URL {url!r}: a path cannot contain a NUL character.")
    return str(folder / path[1:])


def _write_ahead(raw: sqlite3.Connection) -> None:
    """Let readers work beside a writer. While others open the same new file, SQLite may refuse without waiting."""
    deadline = monotonic() + LOCK_SECONDS
    while True:
        try:
            raw.execute("pragma journal_mode = wal").fetchall()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or monotonic() > deadline:
                raise
            time.sleep(REFUSED_SECONDS)
        else:
            return


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
