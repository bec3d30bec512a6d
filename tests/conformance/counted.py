"""A database that records every call to its driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stagepost.database.connection import Connection, Database
from stagepost.database.dialect import Dialect, ParameterStyle
from stagepost.database.failures import Address
from stagepost.database.statement import Row, Rows

__all__ = ["Counted"]


@dataclass
class Counted:
    """Records the first word of every call."""

    database: Database
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dialect: Dialect = self.database.dialect
        self.style: ParameterStyle = self.database.style
        self.shares_one_connection = self.database.shares_one_connection

    @property
    def is_memory(self) -> bool:
        return self.database.is_memory

    @property
    def address(self) -> Address:
        return self.database.address

    def connect(self) -> Connection:
        return CountedConnection(self.database.connect(), self.calls)


class CountedConnection:
    """Passes calls on and records them."""

    def __init__(self, connection: Connection, calls: list[str]) -> None:
        self._connection, self._calls = connection, calls
        self.raw, self.is_pooled = connection.raw, connection.is_pooled
        self.most_bytes = connection.most_bytes

    def execute(self, sql: str, parameters: Any) -> Rows:
        self._calls.append(sql.split(maxsplit=1)[0])
        return self._connection.execute(sql, parameters)

    def load(self, sql: str, rows: Iterable[Row]) -> int:
        self._calls.append("load")
        return self._connection.load(sql, rows)

    def begin(self, *, read_only: bool = False) -> None:
        self._calls.append("begin")
        self._connection.begin(read_only=read_only)

    def commit(self) -> None:
        self._calls.append("commit")
        self._connection.commit()

    def rollback(self) -> None:
        self._calls.append("rollback")
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._connection.abort()
