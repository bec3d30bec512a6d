"""Plans: generators that yield operations and pauses and receive results, for work in several transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from stagepost.clock import sleep
from stagepost.database.statement import Operation
from stagepost.database.transaction import run_in, run_in_async

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Plan", "carry_out", "carry_out_async"]

T = TypeVar("T")

Plan = Generator[Operation[Any] | float, Any, T]
"""Yields an operation to run, or a number of seconds to wait."""


def carry_out(plan: Plan[T], app: App, tx: Any = None) -> T:
    """Run each operation in a separate transaction, or all of them in the caller's."""
    try:
        step = next(plan)
        while True:
            if isinstance(step, Operation):
                step = plan.send(app.store.run(step) if tx is None else run_in(tx, step, clock=app.clock))
            else:
                sleep(step)
                step = next(plan)
    except StopIteration as end:
        result: T = end.value
        return result


async def carry_out_async(plan: Plan[T], app: App, tx: Any = None) -> T:
    """Run a plan like `carry_out`, without blocking the event loop."""
    try:
        step = next(plan)
        while True:
            if isinstance(step, Operation):
                running = app.async_store.run(step) if tx is None else run_in_async(tx, step, clock=app.clock)
                step = plan.send(await running)
            else:
                await asyncio.sleep(step)
                step = next(plan)
    except StopIteration as end:
        result: T = end.value
        return result
