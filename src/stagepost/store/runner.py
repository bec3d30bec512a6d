"""Runs operations on connections: one small runner for each colour, everything else is shared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from stagepost.clock import Clock
from stagepost.store.dialect import Dialect, ParameterStyle, SqlCall, calls_of
from stagepost.store.statement import Operation, Rows

__all__ = ["Calls", "calls_for", "drive", "drive_async"]

T = TypeVar("T")

Calls = Generator[SqlCall, Rows, T]


def calls_for(operation: Operation[T], *, dialect: Dialect, style: ParameterStyle, clock: Clock) -> Calls[T]:
    """Turn an operation into the driver calls it needs; sending their rows leads to its result."""
    steps = operation.start()
    try:
        statement = next(steps)
        while True:
            rows = yield from calls_of(statement, dialect=dialect, style=style, clock=clock)
            statement = steps.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def drive(calls: Calls[T], execute: Callable[[str, Any], Rows]) -> T:
    """Make the calls, inside whatever transaction `execute` is in."""
    try:
        call = next(calls)
        while True:
            call = calls.send(execute(call.sql, call.parameters))
    except StopIteration as end:
        result: T = end.value
        return result


async def drive_async(calls: Calls[T], execute: Callable[[str, Any], Awaitable[Rows]]) -> T:
    """Make the calls, inside whatever transaction `execute` is in."""
    try:
        call = next(calls)
        while True:
            call = calls.send(await execute(call.sql, call.parameters))
    except StopIteration as end:
        result: T = end.value
        return result
