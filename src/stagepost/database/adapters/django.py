"""Callers' Django connections: `django.db.connection` and `connections[alias]`."""

from __future__ import annotations

from typing import Any

from stagepost.database.adapters.caller_connection import SyncCallerConnection
from stagepost.database.dialect import MYSQL, POSTGRES, SQLITE, Dialect, ParameterStyle
from stagepost.database.statement import Rows
from stagepost.errors import ConfigurationError, NoTransaction

__all__ = ["dialect_of", "open_django"]

VENDORS: dict[str, Dialect] = {"sqlite": SQLITE, "postgresql": POSTGRES, "mysql": MYSQL}


def dialect_of(tx: Any) -> Dialect:
    """Return the dialect of a Django connection."""
    if tx.vendor not in VENDORS:
        known = ", ".join(sorted(VENDORS))
        raise ConfigurationError(f"Django database {tx.alias!r} is {tx.vendor}. Stagepost supports {known}.")
    return VENDORS[tx.vendor]


def open_django(tx: Any) -> SyncCallerConnection:
    """Use a Django connection; all backends accept `%(name)s`."""
    dialect = dialect_of(tx)
    if not tx.in_atomic_block and tx.get_autocommit():
        raise NoTransaction(tx)

    def execute(sql: str, parameters: Any) -> Rows:
        with tx.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    return SyncCallerConnection(dialect, ParameterStyle.PYFORMAT, execute, tx.connection)
