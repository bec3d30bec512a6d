"""Creates the tables in the app's database, and opens transactions on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stagepost import App
from stagepost_dubbing.tables.connection import Connection, statements_of

__all__ = ["Database"]

TABLE_OPTIONS = " engine=InnoDB default charset=utf8mb4 collate=utf8mb4_bin"
"""Lets MariaDB and MySQL store text of all languages and compare it exactly."""


class Database:
    """Transactions on the app's database, in which tasks and jobs change together."""

    def __init__(self, app: App) -> None:
        self._app = app

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction that commits if the body returns."""
        with self._app.transaction() as raw:
            yield Connection(raw)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read-only transaction, which waits for no other."""
        with self._app.transaction(read_only=True) as raw:
            yield Connection(raw)

    def migrate(self) -> None:
        """Create missing tables, Stagepost's and ours; safe to call at every start."""
        self._app.migrate()
        with self.transaction() as tx:
            if tx.driver == "psycopg":
                tx.one("lock_schema")  # `if not exists` is not safe when two processes start at once
            for statement in statements_of("schema"):
                tx.run_text(statement + (TABLE_OPTIONS if tx.driver == "pymysql" else ""))
