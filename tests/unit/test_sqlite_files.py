"""Opening SQLite files that other processes use."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stagepost.database import sqlite
from stagepost.database.sqlite import SqliteDatabase
from stagepost.errors import StoreUnavailable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stagepost.db"


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process's connection, which has the file locked."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        yield other


def test_a_file_that_sqlite_refuses_while_others_open_it_is_opened_a_moment_later(
    path: Path, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does where two of them make it a file with a log at the same moment: without waiting."""
    tries: list[str] = []

    class Impatient(sqlite3.Connection):
        def execute(self, sql: str, /, *arguments: Any) -> sqlite3.Cursor:
            if "journal_mode" in sql:
                super().execute("pragma busy_timeout = 0")
                tries.append(sql)
                if len(tries) == 3:
                    other.execute("rollback")
            return super().execute(sql, *arguments)

    monkeypatch.setattr(sqlite3, "connect", Impatient)
    opened = SqliteDatabase(str(path)).connect()

    assert len(tries) == 3
    assert opened.execute("pragma synchronous", {}) == [(2,)]
    opened.close()


def test_a_file_that_stays_locked_is_said_to_be(
    path: Path, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "LOCK_SECONDS", 0.05)
    with pytest.raises(StoreUnavailable, match=r"cannot be opened: database is locked\. Another process has it locked"):
        SqliteDatabase(str(path)).connect()


def test_a_file_that_stays_locked_is_not_left_open(
    path: Path, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []

    class Remembered(sqlite3.Connection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            opened.append(self)

    monkeypatch.setattr(sqlite3, "connect", Remembered)
    monkeypatch.setattr(sqlite, "LOCK_SECONDS", 0.05)
    with pytest.raises(StoreUnavailable):
        SqliteDatabase(str(path)).connect()

    [refused] = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        refused.execute("select 1")


def test_a_file_in_a_folder_that_is_not_there_is_said_to_be(path: Path) -> None:
    with pytest.raises(
        StoreUnavailable, match=r"unable to open database file\. Check that its folder exists and is writable"
    ):
        SqliteDatabase(str(path.parent / "missing" / "stagepost.db")).connect()
