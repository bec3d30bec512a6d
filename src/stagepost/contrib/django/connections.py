"""Keeps handlers' Django connections sound: none is used after the server has closed it, none is left open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any
from weakref import WeakSet

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections

from stagepost.client.app import App
from stagepost.client.context import JobContext

__all__ = ["ConnectionCare"]


class ConnectionCare:
    """Does for attempts what Django does for requests, with hooks of the app.

    A plain handler's thread keeps its connections between attempts as long as `CONN_MAX_AGE` allows. An `async def`
    handler has a thread of its own for its queries, as a request under ASGI does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: WeakSet[Any] = WeakSet()
        """Open connections of threads that run no attempt now."""

    def watch(self, app: App) -> None:
        """Register the hooks."""
        app.around_attempt(self.in_thread)
        app.around_attempt(self.in_coroutine)
        app.on_worker_stop(self.close_kept)

    def in_thread(self, job: JobContext) -> Iterator[None]:  # noqa: ARG002 - every hook gets the job
        """Close connections that are old or broken before and after an attempt, in its thread."""
        if _is_on_event_loop():  # `in_coroutine` takes care of it
            yield
            return
        with self._lock:
            self._kept.difference_update(_open_connections())
        _close_old()
        _close_broken()
        try:
            yield
        finally:
            _close_old()
            with self._lock:
                self._kept.update(_open_connections())

    async def in_coroutine(self, job: JobContext) -> AsyncIterator[None]:  # noqa: ARG002
        """Give an attempt a thread of its own for queries, and close what was opened there."""
        async with ThreadSensitiveContext() as context:
            try:
                yield
            finally:
                if context in SyncToAsync.context_to_thread_executor:
                    await sync_to_async(connections.close_all)()

    def close_kept(self) -> None:
        """Close the connections that idle threads have kept."""
        with self._lock:
            kept = list(self._kept)
            self._kept.clear()
        for connection in kept:
            if not connection.in_atomic_block:
                connection.inc_thread_sharing()  # it was opened by another thread, which has ended or waits
                try:
                    connection.close()
                finally:
                    connection.dec_thread_sharing()


def _open_connections() -> list[Any]:
    """List this thread's open connections, except those inside a transaction, which is a test's."""
    initialized = connections.all(initialized_only=True)
    return [found for found in initialized if found.connection is not None and not found.in_atomic_block]


def _close_old() -> None:
    """Close connections past their age or after an error, like Django's `close_old_connections`."""
    for connection in _open_connections():
        connection.close_if_unusable_or_obsolete()


def _close_broken() -> None:
    """Close connections whose server was restarted while they were idle; Django notices only after an error."""
    for connection in _open_connections():
        if not connection.is_usable():
            connection.close()


def _is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
