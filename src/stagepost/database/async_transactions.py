"""Transactions on asynchronous connections of our own, lent to async code on any number of event loops."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Any

from stagepost.database.async_connection import AsyncConnection, connect_async, uninterrupted
from stagepost.database.async_pool import AsyncPool
from stagepost.database.connection import Database
from stagepost.database.deadline import Deadlines
from stagepost.database.failures import Translated, commit_failure, failure_of
from stagepost.database.forks import reset_after_fork
from stagepost.database.lent import lending
from stagepost.database.pool import Pool
from stagepost.database.trouble import Trouble

__all__ = ["AsyncLoan", "AsyncTransactions"]

CLOSE_SECONDS = 5.0
"""How long a thread waits for another thread's event loop to close its connections."""


@dataclass
class AsyncLoan:
    """A connection on loan in a transaction."""

    connection: AsyncConnection
    is_sound: bool = False
    """No transaction is open in it, and nothing is in doubt."""
    is_committed: bool = False

    @property
    def raw(self) -> Any:
        """What the driver calls a connection."""
        return self.connection.raw


class AsyncTransactions:
    """Lends connections to `async with app.transaction()`, from one pool for each event loop."""

    def __init__(self, database: Database, pool: Pool, *, call_seconds: float) -> None:
        """`pool` holds the blocking connections for handlers: its size and patience apply to each loop, too."""
        self.database = database
        self._place: dict[str, Any] = {"dialect": database.dialect, "address": database.address}
        self.call_seconds = call_seconds
        self._blocking = pool
        self._deadlines = Deadlines()
        self._inherited: list[AsyncPool] = []
        self._pools: dict[asyncio.AbstractEventLoop, AsyncPool] = {}
        self._lock = threading.Lock()
        reset_after_fork(self)

    def reset(self) -> None:
        """Leave the connections of the parent to it, unclosed: both processes would talk on the same sockets."""
        self._lock = threading.Lock()
        self._inherited += self._pools.values()  # kept referenced, so that no finaliser closes the parent's sessions
        self._pools = {}

    @contextlib.asynccontextmanager
    async def transaction(self, *, read_only: bool = False) -> AsyncIterator[AsyncLoan]:
        """Lend a connection inside a transaction that commits if the body returns."""
        pool = await self._pool_of_loop()
        loan = AsyncLoan(await self._begun(pool, read_only=read_only))
        try:
            try:
                with lending(loan.raw, self.database, read_only=read_only) as lent:
                    yield loan
                lent.require_whole()
            except BaseException:
                with contextlib.suppress(Exception):
                    await uninterrupted(self._roll_back(loan))
                raise  # what went wrong in the body, not what went wrong in clearing up after it
            await uninterrupted(self._commit(loan))
        finally:
            await pool.give_back(loan.connection, is_sound=loan.is_sound)

    def close(self) -> None:
        """Close the connections of all loops, from any thread."""
        with self._lock:
            pools, self._pools = self._pools, {}
        for loop, pool in pools.items():
            _close_from_outside(loop, pool)

    async def close_async(self) -> None:
        """Close the connections of the running loop."""
        with self._lock:
            pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    async def _pool_of_loop(self) -> AsyncPool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.is_closed:
            with self._lock:
                ended = [self._pools.pop(other) for other in list(self._pools) if other.is_closed()]
                connect = partial(connect_async, self.database, self._blocking)
                pool = AsyncPool(connect, size=self._blocking.size, wait_seconds=self._blocking.wait_seconds)
                self._pools[loop] = pool
            for left_open in ended:
                left_open.abandon()
            await pool.follow_loop()
        return pool

    async def _begun(self, pool: AsyncPool, *, read_only: bool) -> AsyncConnection:
        """Lend a connection in a new transaction; one that died in the pool is replaced, and so are its neighbours."""
        for is_last_try in (False, True):
            connection = await pool.acquire()
            try:
                await self._in_time(connection, connection.begin(read_only=read_only))
            except BaseException as error:
                await pool.give_back(connection, is_sound=False)
                if is_last_try or self.database.dialect.trouble(error) is not Trouble.CONNECTION:
                    with Translated(partial(failure_of, "begin", **self._place)):
                        raise
                pool.close_idle()
            else:
                return connection
        raise AssertionError("the last try returns or raises")

    async def _commit(self, loan: AsyncLoan) -> None:
        try:
            await self._in_time(loan.connection, loan.connection.commit())
        except Exception as error:
            if self.database.dialect.trouble(error) is not Trouble.CONNECTION:
                with contextlib.suppress(Exception):
                    await self._roll_back(loan)
            with Translated(partial(commit_failure, **self._place)):
                raise
        loan.is_sound = loan.is_committed = True

    async def _roll_back(self, loan: AsyncLoan) -> None:
        await self._in_time(loan.connection, loan.connection.rollback())
        loan.is_sound = True

    async def _in_time(self, connection: AsyncConnection, call: Awaitable[None]) -> None:
        with self._deadlines.limit(self.call_seconds, connection.abort):
            await call


def _close_from_outside(loop: asyncio.AbstractEventLoop, pool: AsyncPool) -> None:
    try:
        here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if loop is here:
        pool.close_soon()
    elif loop.is_closed():
        pool.abandon()
    elif loop.is_running():
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            asyncio.run_coroutine_threadsafe(pool.close(), loop).result(CLOSE_SECONDS)
    elif here is None:
        loop.run_until_complete(pool.close())
    else:
        pool.abandon()
