"""Procedures: generators that yield operations and pauses and receive results, for work in several transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from stagepost.clock import sleep
from stagepost.database.statement import Operation
from stagepost.database.transaction import run_in, run_in_async

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Procedure", "run_procedure", "run_procedure_async"]

T = TypeVar("T")

Procedure = Generator[Operation[Any] | float, Any, T]
"""Yields an operation to run, or a number of seconds to wait."""


def run_procedure(procedure: Procedure[T], app: App, tx: Any = None) -> T:
    """Run each operation in a separate transaction, or all of them in the caller's."""
    try:
        step = next(procedure)
        while True:
            if isinstance(step, Operation):
                store = app.store
                done = (
                    store.run(step)
                    if tx is None
                    else run_in(tx, step, clock=app.clock, database=store.callers_database)
                )
                step = procedure.send(done)
            else:
                sleep(step)
                step = next(procedure)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_procedure_async(procedure: Procedure[T], app: App, tx: Any = None) -> T:
    """Run a procedure like `run_procedure`, without blocking the event loop."""
    try:
        step = next(procedure)
        while True:
            if isinstance(step, Operation):
                if tx is None:
                    done = await app.async_store.run(step)
                else:
                    done = await run_in_async(tx, step, clock=app.clock, database=app.store.callers_database)
                step = procedure.send(done)
            else:
                await asyncio.sleep(step)
                step = next(procedure)
    except StopIteration as end:
        result: T = end.value
        return result
