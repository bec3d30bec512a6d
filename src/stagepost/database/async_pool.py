"""Keeps the asynchronous connections of one event loop for reuse, and closes them before the loop ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from stagepost.database.async_connection import AsyncConnection, uninterrupted
from stagepost.errors import StoreUnavailable

__all__ = ["AsyncPool"]


_closings: set[asyncio.Task[None]] = set()
"""Kept referenced, because a loop does not do that."""


class AsyncPool:
    """At most `size` connections, opened when needed, the one used last handed out first."""

    def __init__(
        self, connect: Callable[[], Coroutine[Any, Any, AsyncConnection]], *, size: int, wait_seconds: float
    ) -> None:
        self.size, self.wait_seconds = size, wait_seconds
        self._connect = connect
        self._slots = asyncio.Semaphore(size)
        self._idle: list[AsyncConnection] = []
        self._lent: set[AsyncConnection] = set()
        self._closing: set[AsyncConnection] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_closed = False
        self._loop_end = self._close_at_loop_end()

    @property
    def in_use(self) -> int:
        """How many connections are lent at the moment."""
        return len(self._lent)

    async def acquire(self) -> AsyncConnection:
        """Take a connection; `give_back` must follow."""
        await self._take_slot()
        if self.is_closed:
            self._slots.release()
            raise StoreUnavailable("the app was closed while this transaction waited for a connection.")
        if self._idle:
            connection = self._idle.pop()
        else:
            connection = await self._open()
        self._lent.add(connection)
        return connection

    async def give_back(self, connection: AsyncConnection, *, is_sound: bool) -> None:
        """Keep a sound connection for the next transaction, close any other."""
        self._lent.discard(connection)
        self._slots.release()
        if is_sound and connection.is_kept and not self.is_closed:
            self._idle.append(connection)
            return
        if not is_sound:
            connection.abort()
        closing = self._start_closing(connection)
        if is_sound:  # otherwise nobody waits: its driver may still be busy with what was cancelled
            await uninterrupted(closing)

    def close_idle(self) -> None:
        """Close what nobody uses at the moment; new connections are opened when needed."""
        idle, self._idle = self._idle, []
        for connection in idle:
            self._start_closing(connection)

    async def close(self) -> None:
        """Close what is idle now, and what is lent once it is given back."""
        await self._close()
        with contextlib.suppress(RuntimeError):  # the loop is ending, and closes the pool at this moment
            await self._loop_end.aclose()

    def close_soon(self) -> None:
        """Close it from plain code on its own loop."""
        closing = asyncio.create_task(self.close())
        _closings.add(closing)
        closing.add_done_callback(_closings.discard)

    def abandon(self) -> None:
        """Release all connections of a loop that has ended without closing them."""
        self.is_closed = True
        for connection in [*self._idle, *self._lent, *self._closing]:
            with contextlib.suppress(Exception):
                connection.abandon()
        self._idle, self._lent, self._closing = [], set(), set()

    async def follow_loop(self) -> None:
        """Have the pool closed when the running loop ends: `asyncio.run` finalises async generators then."""
        await anext(self._loop_end)

    async def _close_at_loop_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        self.is_closed = True
        self.close_idle()
        while self._tasks:
            await asyncio.wait(self._tasks)
        for connection in list(self._closing):  # tasks that the end of the loop has cancelled
            await self._finish_closing(connection)

    async def _take_slot(self) -> None:
        try:
            async with asyncio.timeout(self.wait_seconds):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"no database connection became free in {self.wait_seconds:g} s: all {self.size} are in use. "
                f"Raise `pool_size`, or look for code that holds a connection for a long time."
            ) from None

    async def _open(self) -> AsyncConnection:
        opening = self._start(self._connect())
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._keep_opened)  # a server that does not answer must not hold up the caller
            raise
        except BaseException:
            self._slots.release()
            raise

    def _keep_opened(self, opening: asyncio.Task[AsyncConnection]) -> None:
        self._slots.release()
        if opening.cancelled() or opening.exception() is not None:
            return
        if self.is_closed or not opening.result().is_kept:
            self._start_closing(opening.result())
        else:
            self._idle.append(opening.result())

    def _start_closing(self, connection: AsyncConnection) -> asyncio.Task[None]:
        self._closing.add(connection)
        return self._start(self._finish_closing(connection))

    async def _finish_closing(self, connection: AsyncConnection) -> None:
        with contextlib.suppress(Exception):
            await connection.close()
        self._closing.discard(connection)

    def _start(self, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
