"""Threads for plain functions: as many as are needed at once, and able to leave a stuck one behind."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["ThreadPool"]

T = TypeVar("T")

Call = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class ThreadPool:
    """Daemon threads, so that a handler that never returns cannot keep the process from exiting."""

    def __init__(self, name: str = "stagepost-handler", *, on_freed: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._on_freed = on_freed
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self.stuck = 0
        """How many threads still run a call that nobody waits for any more."""

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function in a thread, in a copy of the caller's context.

        A caller that is cancelled leaves the thread running; it counts as stuck until the function returns.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        self._busy += 1
        if self._busy + self.stuck > len(self._threads):
            self._add_thread()
        done = False

        def call() -> T:
            nonlocal done
            try:
                return context.run(function)
            finally:
                done = True

        self._calls.put((call, loop, future))
        try:
            return await future
        finally:
            self._busy -= 1
            if not done:
                self.stuck += 1
                self._watch(loop, lambda: done)

    def close(self) -> None:
        """Let idle threads end; stuck ones end with the process."""
        for _ in self._threads:
            self._calls.put(None)

    def _watch(self, loop: asyncio.AbstractEventLoop, is_done: Callable[[], bool]) -> None:
        if is_done():
            self.stuck -= 1
            self._on_freed()
        else:
            loop.call_later(0.2, self._watch, loop, is_done)

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, loop, future = item
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001 - handed to the one who waits, whatever it is
                error = raised
            try:
                loop.call_soon_threadsafe(_deliver, future, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            del item, call, future, result, error


def _deliver(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration | GeneratorExit):
        # A future refuses to hold the one; the other would end the coroutines that wait, not reach them.
        future.set_exception(RuntimeError(f"the handler raised {type(error).__name__}"))
    else:
        future.set_exception(error)
