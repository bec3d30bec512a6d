"""The store for async code: operations run on threads of its own, so the loop never waits for a database."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from stagepost.clock import monotonic
from stagepost.database.deadline import Deadlines
from stagepost.database.statement import Operation
from stagepost.database.store import Store
from stagepost.database.threads import DaemonThreads

__all__ = ["AsyncStore"]

T = TypeVar("T")


class AsyncStore:
    """Runs a store's operations without blocking the loop.

    A caller that is cancelled stops waiting; its operation still commits or rolls back as a whole, and its
    connection is never left in the middle of something.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.answered_at = float("-inf")
        """When an operation last succeeded, on the local monotonic clock."""
        self._deadlines = Deadlines()
        self._under_way: set[Future[Any]] = set()
        # Its own threads, never the loop's default ones, which handlers may fill up.
        self._threads = DaemonThreads(store.pool.size, name="stagepost-store")

    async def run(self, operation: Operation[T], *, patience_seconds: float | None = None) -> T:
        """Run an operation in a transaction of its own."""
        call = self._threads.submit(
            partial(self.store.run, operation, patience_seconds=patience_seconds, deadlines=self._deadlines)
        )
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        result = await asyncio.wrap_future(call)
        self.answered_at = monotonic()
        return result

    async def finish_calls(self) -> None:
        """Wait for the operations that are under way, among them those whose callers were cancelled."""
        if calls := list(self._under_way):
            await asyncio.gather(*map(asyncio.wrap_future, calls), return_exceptions=True)

    def close(self) -> None:
        """Let running operations end, then stop the threads; the store itself stays open."""
        self._threads.close(waits=True)

    def abort(self) -> None:
        """Break off running operations and stop the threads without waiting; the store itself stays open."""
        self._deadlines.abort_all()
        self._threads.close(waits=False)
