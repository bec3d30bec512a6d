"""A plain connection to PostgreSQL that counts a contender's rows and multiplies its ended jobs."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

__all__ = ["Inspector"]

ORIGINALS = 1000


class Inspector:
    """Looks at the tables from outside, so that every contender's jobs are counted in the same way."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def count(self, query: str) -> int:
        """Run a query that gives one number."""
        row = self._connection.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0

    def multiply(self, table: str, *, where: str, rows: int, replaced: Mapping[str, str]) -> None:
        """Copy the rows that match until there are so many.

        `replaced` gives columns another value in the copies; in it `serial` counts them. The table's triggers
        are left out, and it is vacuumed at the end, so that autovacuum has nothing to do while others measure.
        """
        present = self.count(f"select count(*) from {table} where {where}")  # noqa: S608 - our own constants
        missing = rows - present
        if missing > 0:
            with self._connection.transaction():
                self._connection.execute("set local session_replication_role = replica")
                self._connection.execute(self._multiplication(table, where, present, missing, replaced).encode())
        self._connection.execute(f"vacuum analyze {table}".encode())

    def _multiplication(self, table: str, where: str, present: int, missing: int, replaced: Mapping[str, str]) -> str:
        columns = [str(name) for (name,) in self._connection.execute(COLUMNS, {"table": table})]
        values = [replaced.get(name, f'original."{name}"') for name in columns]
        names = ", ".join(f'"{name}"' for name in columns)
        originals = min(ORIGINALS, present)
        copies = -(-missing // originals)
        return (
            f"insert into {table} ({names}) overriding system value "  # noqa: S608 - our own constants
            f"select {', '.join(values)} from ("
            f"select row_number() over () as serial, ended.* from generate_series(1, {copies}) as copy "
            f"cross join (select * from {table} where {where} limit {originals}) as ended "
            f"limit {missing}) as original"
        )


COLUMNS = """
select attname
from pg_attribute
where attrelid = %(table)s::regclass and attnum > 0 and not attisdropped and attgenerated = ''
order by attnum
"""
