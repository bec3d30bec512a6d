"""The interface that we give to a caller's connection, whatever its driver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stagepost.database.dialect import Dialect, ParameterStyle
from stagepost.database.statement import Rows

__all__ = ["AsyncCallerConnection", "CallerConnection", "SyncCallerConnection"]

R = TypeVar("R")


@dataclass(frozen=True)
class CallerConnection(Generic[R]):
    """Runs statements inside the caller's transaction, which the caller ends."""

    dialect: Dialect
    style: ParameterStyle
    execute: Callable[[str, Any], R]
    """Runs a statement with its parameters and returns all rows as plain tuples."""
    raw: Any
    """The driver's own connection."""
    opening: str | None = None
    """The statement that starts the transaction now; the driver would start it only before the first write."""


SyncCallerConnection = CallerConnection[Rows]
AsyncCallerConnection = CallerConnection[Awaitable[Rows]]
