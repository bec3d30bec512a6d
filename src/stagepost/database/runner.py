"""Runs operations on connections: one small runner for blocking drivers, one for async drivers, the rest shared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from stagepost.clock import Clock
from stagepost.database.capacity import SizeLimit
from stagepost.database.dialect import Dialect, ParameterStyle, SqlCall, calls_of, script_of
from stagepost.database.statement import Load, Operation, Rows, Step

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

    `load` inserts many rows at once, if the connection can; operations use it only after their first statement, when
    the transaction is open. `most_bytes` is the longest statement that the server accepts, if the connection knows it.
    """
    size_limit = SizeLimit(dialect, most_bytes)
    while True:
        steps = operation.steps()
        is_committed = False
        try:
            step = next(steps)
            while True:
                if is_committed:
                    raise _second_statement(operation, step)
                if isinstance(step, Load):
                    rows = load(step) if load else []
                else:
                    script = script_of(step, dialect=dialect, style=style, clock=clock)
                    pieces = [step]
                    if step.split is not None or size_limit.must_check:
                        pieces = yield from size_limit.pieces(step, script.texts)
                    is_committed = operation.definition.is_single_statement and len(pieces) * len(script.texts) == 1
                    rows = []
                    for piece in pieces:
                        rows += yield from calls_of(
                            piece, dialect=dialect, style=style, clock=clock, needs_transaction=not is_committed
                        )
                step = steps.send(rows)
        except StopIteration as end:
            result: T | Operation[T] = end.value
            if not isinstance(result, Operation):
                return result
            operation = result


def _second_statement(operation: Operation[Any], step: Step) -> RuntimeError:
    return RuntimeError(
        f"{operation.name}: `{step.name}` follows a statement that commits by itself. Return an operation for what "
        f"follows the only statement, or define `{operation.name}` with @operation."
    )


def drive(calls: Calls[T], execute: Callable[[str, Any], Rows], *, begin: Callable[[], None] | None = None) -> T:
    """Make the calls in the current transaction of `execute`; `begin` starts one when a call needs it."""
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
    """Make the calls in the current transaction of `execute`."""
    try:
        call = next(calls)
        while True:
            call = calls.send(await execute(call.sql, call.parameters))
    except StopIteration as end:
        result: T = end.value
        return result
