"""The store for async code: operations run on threads of its own, so the loop never waits for a database."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from stagepost.store.statement import Operation
from stagepost.store.store import Store

__all__ = ["AsyncStore"]

T = TypeVar("T")


class AsyncStore:
    """Runs a store's operations without blocking the loop.

    A caller that is cancelled stops waiting; its operation still commits or rolls back as a whole, and its
    connection is never left in the middle of something.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        # Its own threads, never the loop's default ones, which handlers may fill up.
        self._threads = ThreadPoolExecutor(store.pool.size, thread_name_prefix="stagepost-store")

    async def run(self, operation: Operation[T], *, patience_seconds: float | None = None) -> T:
        """Run an operation in a transaction of its own."""
        call = partial(self.store.run, operation, patience_seconds=patience_seconds)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        """Let running operations end, then stop the threads; the store itself stays open."""
        self._threads.shutdown(wait=True)
