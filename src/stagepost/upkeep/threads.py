"""Runs what blocks in a thread that nobody has to wait for at the end."""

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
    """Call something that may hang for long, such as in a network; a process that ends leaves it behind."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            result, error = function(*args, **kwargs), None
        except Exception as raised:  # noqa: BLE001 - raised where it is waited for
            result, error = None, raised
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, name="stagepost-aside", daemon=True).start()
    return await answer
