"""One way to write statements for three drivers: `?` for a value, `now_us()` for the database's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Connection"]

NOW = {
    "sqlite3": "cast((julianday('now') - 2440587.5) * 86400000000 as integer)",
    "psycopg": "cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)",
    "pymysql": "cast(unix_timestamp(sysdate(6)) * 1000000 as signed)",
}
"""Microseconds since 1970 by the driver's package."""

Row = tuple[Any, ...]


class Connection:
    """A driver's connection in a transaction, as `app.transaction()` lends it."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.driver = type(raw).__module__.partition(".")[0]

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement, and say how many rows it changed."""
        return int(self._cursor(sql, parameters).rowcount)

    def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a query."""
        return [tuple(row) for row in self._cursor(sql, parameters).fetchall()]

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        """Run a query that gives one row, or none."""
        rows = self.all(sql, parameters)
        return rows[0] if rows else None

    @property
    def locking(self) -> str:
        """What a query ends with that keeps its rows from others; SQLite has one writer anyway."""
        return "" if self.driver == "sqlite3" else " for update"

    def _cursor(self, sql: str, parameters: Sequence[Any]) -> Any:
        sql = sql.replace("now_us()", NOW[self.driver])
        if self.driver != "sqlite3":
            sql = sql.replace("?", "%s")
        cursor = self.raw.cursor()
        cursor.execute(sql, tuple(parameters))
        return cursor
