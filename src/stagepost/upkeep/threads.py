"""Runs blocking calls in daemon threads, which do not keep the process from ending."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["in_thread"]

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that may block for long, such as on the network. A process that ends abandons the call."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            result, error = function(*args, **kwargs), None
        except Exception as raised:  # noqa: BLE001 - raised in the caller
            result, error = None, raised
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name="stagepost-aside", daemon=True).start()
    return await answer
