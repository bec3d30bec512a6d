"""The tables in the app's database: makes them, and lends transactions on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stagepost import App
from stagepost_dubbing.tables.connection import Connection, statements_of

__all__ = ["Database"]

TABLE_OPTIONS = " engine=InnoDB default charset=utf8mb4 collate=utf8mb4_bin"
"""What MariaDB and MySQL need to keep texts of all languages, and to tell apart what differs."""


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
        with self.transaction() as tx:
            if tx.driver == "psycopg":
                tx.one("lock_schema")  # two processes may start at once, and `if not exists` is not enough for that
            for statement in statements_of("schema"):
                tx.run_text(statement + (TABLE_OPTIONS if tx.driver == "pymysql" else ""))
