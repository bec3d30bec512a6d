"""What a caller's connection is brought to, whatever its driver."""

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
    """A way to run statements inside the caller's transaction, which is the caller's to end."""

    dialect: Dialect
    style: ParameterStyle
    execute: Callable[[str, Any], R]
    """Takes a statement and its parameters; gives all its rows as plain tuples."""
    opening: str | None = None
    """What opens the transaction that the driver would open by itself, but only before its first write."""


SyncCallerConnection = CallerConnection[Rows]
AsyncCallerConnection = CallerConnection[Awaitable[Rows]]
