"""Runs the statements in `sql/` on the connections of three drivers."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["Connection", "Row", "shortened", "statements_of"]

NOW = {
    "sqlite3": "cast((julianday('now') - 2440587.5) * 86400000000 as integer)",
    "psycopg": "cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)",
    "pymysql": "cast(unix_timestamp(sysdate(6)) * 1000000 as signed)",
}
"""The SQL for `now_us()`, microseconds since 1970 by the database's clock, for each driver."""
PARAMETER = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)")

LONGEST_ERROR = 8_000
"""In characters, because a column holds 64 KiB in some databases."""

Row = tuple[Any, ...]


class Connection:
    """A driver's connection in a transaction, from `app.transaction()`."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        packages = (kind.__module__.partition(".")[0] for kind in type(raw).__mro__)  # it may be a subclass
        self.driver = next(package for package in packages if package in NOW)

    def change(self, statement: str, /, **values: object) -> int:
        """Run the statement in a file; returns how many rows it changed."""
        return int(self._cursor(statement, values).rowcount)

    def all(self, query: str, /, **values: object) -> list[Row]:
        """Run the query in a file; returns all rows."""
        return [tuple(row) for row in self._cursor(query, values).fetchall()]

    def one(self, query: str, /, **values: object) -> Row | None:
        """Run a query that returns at most one row."""
        rows = self.all(query, **values)
        return rows[0] if rows else None

    def run_text(self, sql: str) -> None:
        """Run a schema statement, given as SQL."""
        self.raw.cursor().execute(sql)

    def _cursor(self, name: str, values: dict[str, object]) -> Any:
        sql, parameters = _prepared(name, self.driver)
        cursor = self.raw.cursor()
        cursor.execute(sql, tuple(values[parameter] for parameter in parameters))
        return cursor


def shortened(error: str | None) -> str | None:
    """Shorten an error to fit its column, and replace NUL, which PostgreSQL cannot store."""
    return None if error is None else error.replace("\0", " ")[:LONGEST_ERROR]


def statements_of(name: str) -> list[str]:
    """Return the statements of a file."""
    text = resources.files("stagepost_dubbing.tables").joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")
    return [statement.strip() for statement in text.split(";") if statement.strip()]


@cache
def _prepared(name: str, driver: str) -> tuple[str, tuple[str, ...]]:
    """Convert a statement to the driver's parameter style, and list its parameters in order."""
    (sql,) = statements_of(name)
    sql = sql.replace("now_us()", NOW[driver])
    if driver == "sqlite3":
        sql = sql.replace("for update", "")  # SQLite allows only one writer anyway
    return PARAMETER.sub("?" if driver == "sqlite3" else "%s", sql), tuple(PARAMETER.findall(sql))
