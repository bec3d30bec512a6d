"""What PostgreSQL has counted in a contender's database: transactions, and time spent in statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

__all__ = ["Counters"]

QUERY = b"select xact_commit, active_time from pg_stat_database where datname = current_database()"


@dataclass(frozen=True)
class Counters:
    """One reading. Sessions report what they did once a second, and the rest when they end."""

    transactions: int
    statement_seconds: float

    @classmethod
    def read(cls, url: str) -> Self | None:
        """Ask the server; None where it is not PostgreSQL."""
        if not url.startswith("postgres"):
            return None
        import psycopg  # noqa: PLC0415 - contenders without PostgreSQL do not have it

        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(QUERY).fetchone()
        assert row is not None
        return cls(int(row[0]), float(row[1]) / 1000)

    def since(self, earlier: Counters) -> dict[str, float]:
        """The differences, as facts of a sample."""
        return {
            "transactions": self.transactions - earlier.transactions,
            "statement_seconds": self.statement_seconds - earlier.statement_seconds,
        }
