"""The tables in the app's database: makes them, and lends transactions on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources

from stagepost import App
from stagepost_dubbing.tables.connection import Connection

__all__ = ["Database"]

LOCK_NUMBER = 7_302_116
"""Keeps two processes from making the tables at once."""


class Database:
    """Transactions on the app's database, in which tasks and jobs change together."""

    def __init__(self, app: App) -> None:
        self._app = app

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that commits if the body returns."""
        with self._app.transaction() as raw:
            yield Connection(raw)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads, and waits for nobody."""
        with self._app.transaction(read_only=True) as raw:
            yield Connection(raw)

    def migrate(self) -> None:
        """Make the tables that are missing, Stagepost's and ours; safe at every start."""
        self._app.migrate()
        schema = resources.files("stagepost_dubbing.tables").joinpath("sql/schema.sql").read_text(encoding="utf-8")
        with self.transaction() as tx:
            if tx.driver == "psycopg":
                tx.execute("select pg_advisory_xact_lock(?)", (LOCK_NUMBER,))
            for statement in filter(None, map(str.strip, schema.split(";"))):
                tx.execute(statement + (TABLE_OPTIONS if tx.driver == "pymysql" else ""))


TABLE_OPTIONS = " engine=InnoDB default charset=utf8mb4 collate=utf8mb4_bin"
