"""Procedures: generators that yield operations and pauses and receive results, for work in several transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, NamedTuple, Protocol, TypeVar

from stagepost.clock import sleep
from stagepost.database.async_store import AsyncStore
from stagepost.database.statement import Operation
from stagepost.database.store import Store
from stagepost.database.transaction import run_in, run_in_async

__all__ = ["Procedure", "Stores", "run_procedure", "run_procedure_async"]

T = TypeVar("T")

Procedure = Generator[Operation[Any] | float, Any, T]
"""Yields an operation to run, or a number of seconds to wait."""


class HasStores(Protocol):
    """Anything that runs operations in both colours, such as an app."""

    @property
    def store(self) -> Store:
        """Runs operations from plain code."""

    @property
    def async_store(self) -> AsyncStore:
        """Runs operations from async code."""


class Stores(NamedTuple):
    """A store in both colours."""

    store: Store
    async_store: AsyncStore


def run_procedure(procedure: Procedure[T], app: HasStores, tx: Any = None) -> T:
    """Run each operation in a separate transaction, or all of them in the caller's."""
    try:
        step = next(procedure)
        while True:
            if isinstance(step, Operation):
                step = procedure.send(app.store.run(step) if tx is None else run_in(tx, step, clock=app.store.clock))
            else:
                sleep(step)
                step = next(procedure)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_procedure_async(procedure: Procedure[T], app: HasStores, tx: Any = None) -> T:
    """Run a procedure like `run_procedure`, without blocking the event loop."""
    try:
        step = next(procedure)
        while True:
            if isinstance(step, Operation):
                running = app.async_store.run(step) if tx is None else run_in_async(tx, step, clock=app.store.clock)
                step = procedure.send(await running)
            else:
                await asyncio.sleep(step)
                step = next(procedure)
    except StopIteration as end:
        result: T = end.value
        return result
