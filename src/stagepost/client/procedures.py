"""Procedures: generators that yield operations and pauses and receive results, for work in several transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from stagepost.clock import sleep
from stagepost.database.statement import Operation
from stagepost.database.transaction import run_in, run_in_async
from stagepost.errors import StagepostError

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Procedure", "run_procedure", "run_procedure_async"]

T = TypeVar("T")

Procedure = Generator[Operation[Any] | float, Any, T]
"""Yields an operation to run, or a number of seconds to wait."""


def run_procedure(procedure: Procedure[T], app: App, tx: Any = None) -> T:
    """Run each operation in a separate transaction, or all of them in the caller's. It may catch their errors."""
    try:
        step = next(procedure)
        while True:
            if isinstance(step, Operation):
                try:
                    result = app.store.run(step) if tx is None else _run_in(tx, step, app)
                except StagepostError as error:
                    step = procedure.throw(error)
                else:
                    step = procedure.send(result)
            else:
                sleep(step)
                step = next(procedure)
    except StopIteration as end:
        value: T = end.value
        return value


async def run_procedure_async(procedure: Procedure[T], app: App, tx: Any = None) -> T:
    """Run a procedure like `run_procedure`, without blocking the event loop."""
    try:
        step = next(procedure)
        while True:
            if isinstance(step, Operation):
                running = app.async_store.run(step) if tx is None else _run_in_async(tx, step, app)
                try:
                    result = await running
                except StagepostError as error:
                    step = procedure.throw(error)
                else:
                    step = procedure.send(result)
            else:
                await asyncio.sleep(step)
                step = next(procedure)
    except StopIteration as end:
        value: T = end.value
        return value


def _run_in(tx: Any, step: Operation[T], app: App) -> T:
    return run_in(tx, step, clock=app.clock, database=app.store.callers_database)


async def _run_in_async(tx: Any, step: Operation[T], app: App) -> T:
    return await run_in_async(tx, step, clock=app.clock, database=app.store.callers_database)
