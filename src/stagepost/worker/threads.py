"""Threads for plain functions: as many as are needed at once; a thread that is stuck is abandoned."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["ThreadPool"]

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Call:
    """A function that runs in a thread, and its result."""

    function: Callable[[], Any]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    is_stuck: bool = False
    """Its caller was cancelled and waits no more."""


class ThreadPool:
    """Daemon threads, so that a handler that never returns cannot prevent the process from exiting."""

    def __init__(self, name: str = "stagepost-handler", *, on_freed: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._on_freed = on_freed
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._returned: deque[Call] = deque()
        self._will_collect = False
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self.stuck = 0
        """Number of threads that still run a call whose caller was cancelled."""

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function in a thread, in a copy of the caller's context.

        A caller that is cancelled leaves the thread running; it counts as stuck until the function returns.
        """
        loop = asyncio.get_running_loop()
        call = Call(function, contextvars.copy_context(), loop, loop.create_future())
        self._busy += 1
        if self._busy + self.stuck > len(self._threads):
            self._add_thread()
        self._calls.put(call)
        try:
            result: T = await call.future
        except asyncio.CancelledError:
            if call.future.cancelled():
                call.is_stuck = True
                self.stuck += 1
            raise
        finally:
            self._busy -= 1
        return result

    def close(self) -> None:
        """End idle threads; stuck ones end with the process."""
        for _ in self._threads:
            self._calls.put(None)

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.result = call.context.run(call.function)
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                call.error = error
            self._returned.append(call)
            # Results that arrive while the loop is busy are collected together: waking it costs more than most calls.
            if not self._will_collect:
                self._will_collect = True
                try:
                    call.loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the event loop is closed, so no caller waits
                    return
            del call

    def _collect(self) -> None:
        self._will_collect = False  # before the results are taken: later ones wake the loop again
        while self._returned:
            call = self._returned.popleft()
            if call.is_stuck:
                self.stuck -= 1
                self._on_freed()
            elif not call.future.done():
                _deliver(call)


def _deliver(call: Call) -> None:
    if call.error is None:
        call.future.set_result(call.result)
    elif isinstance(call.error, StopIteration | GeneratorExit):
        # A future rejects StopIteration, and GeneratorExit would end the waiting coroutine instead of reaching it.
        call.future.set_exception(RuntimeError(f"the handler raised {type(call.error).__name__}"))
    else:
        call.future.set_exception(call.error)
