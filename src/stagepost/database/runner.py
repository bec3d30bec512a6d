"""Runs operations on connections: one small runner for each colour, everything else is shared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from stagepost.clock import Clock
from stagepost.database.capacity import Gauge
from stagepost.database.dialect import Dialect, ParameterStyle, SqlCall, calls_of
from stagepost.database.statement import Capacity, Load, Operation, Rows

__all__ = ["Calls", "Loader", "calls_for", "drive", "drive_async"]

T = TypeVar("T")

Calls = Generator[SqlCall, Rows, T]
Loader = Callable[[Load], Rows]


def calls_for(
    operation: Operation[T],
    *,
    dialect: Dialect,
    style: ParameterStyle,
    clock: Clock,
    load: Loader | None = None,
    most_bytes: int | None = None,
) -> Calls[T]:
    """Turn an operation into the driver calls it needs; sending their rows leads to its result.

    `load` puts many rows at once where a connection can; an operation asks for it after its first statement only,
    when its transaction is open. `most_bytes` is how long a statement may be, if the connection knows.
    """
    steps = operation.start()
    gauge = Gauge(dialect, most_bytes)
    try:
        step = next(steps)
        while True:
            if isinstance(step, Load):
                rows = load(step) if load else []
            elif isinstance(step, Capacity):
                rows = [((yield from gauge.capacity(step)),)]
            else:
                if gauge.is_needed:
                    yield from gauge.check(step)
                rows = yield from calls_of(step, dialect=dialect, style=style, clock=clock)
            step = steps.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def drive(calls: Calls[T], execute: Callable[[str, Any], Rows], *, begin: Callable[[], None] | None = None) -> T:
    """Make the calls, inside whatever transaction `execute` is in; `begin` opens one where the first needs it."""
    try:
        call = next(calls)
        while True:
            if begin is not None and call.needs_transaction:
                begin()
                begin = None
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
