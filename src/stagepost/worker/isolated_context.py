"""Runs a coroutine with its own copy of the context variables, but without a task of its own."""

from __future__ import annotations

import contextvars
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["run_in_own_context"]

T = TypeVar("T")


@types.coroutine
def run_in_own_context(coroutine: Coroutine[Any, Any, T], on_wait: Callable[[], None]) -> Generator[Any, Any, T]:
    """Await a coroutine so that context variables it sets are visible to it alone, as in a task of its own.

    `on_wait` is called when the coroutine first has to wait. One that ends at once costs no turn of the loop.
    """
    context = contextvars.copy_context()
    step: Callable[[Any], Any] = coroutine.send
    sent: Any = None
    has_waited = False
    while True:
        try:
            awaited = context.run(step, sent)
        except StopIteration as end:
            result: T = end.value
            return result
        if not has_waited:
            has_waited = True
            on_wait()
        try:
            yield awaited
        except BaseException as error:  # noqa: BLE001 - the coroutine handles cancellation and everything else
            step, sent = coroutine.throw, error
        else:
            step, sent = coroutine.send, None
