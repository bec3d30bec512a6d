"""The store for async code: operations run in separate threads, so the event loop never waits for a database."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from stagepost.clock import monotonic
from stagepost.database.deadline import Deadlines
from stagepost.database.lent import refuse_to_wait_for_itself
from stagepost.database.statement import Operation
from stagepost.database.store import Store
from stagepost.database.threads import DaemonThreads

__all__ = ["AsyncStore"]

T = TypeVar("T")


class AsyncStore:
    """Runs a store's operations without blocking the event loop.

    A cancelled caller stops waiting. Its operation still commits or rolls back completely, so the connection is never
    left inside a transaction.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.answered_at = float("-inf")
        """When an operation last succeeded, on the local monotonic clock."""
        self._deadlines = Deadlines()
        self._under_way: set[Future[Any]] = set()
        # Not the default threads of the event loop, because handlers may occupy them all.
        self._threads = DaemonThreads(store.pool.size, name="stagepost-store")

    async def run(self, operation: Operation[T], *, patience_seconds: float | None = None) -> T:
        """Run an operation in its own transaction."""
        store = self.store
        refuse_to_wait_for_itself(operation.name, store.database, reads=operation.definition.is_read_only)
        call = self._threads.submit(
            partial(store.run, operation, patience_seconds=patience_seconds, deadlines=self._deadlines)
        )
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        result = await asyncio.wrap_future(call)
        self.answered_at = monotonic()
        return result

    async def finish_calls(self) -> None:
        """Wait for all running operations, including those whose callers were cancelled."""
        if calls := list(self._under_way):
            await asyncio.gather(*map(asyncio.wrap_future, calls), return_exceptions=True)

    def close(self) -> None:
        """Wait for running operations, then stop the threads. The store itself stays open."""
        self._threads.close(waits=True)

    def abort(self) -> None:
        """Abort running operations and stop the threads without waiting. The store itself stays open."""
        self._deadlines.abort_all()
        self._threads.close(waits=False)
