"""Daemon threads for calls that may hang: they cannot keep a process from exiting, whatever a server does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

__all__ = ["DaemonThreads", "call_in_thread"]

T = TypeVar("T")

Call = tuple["Future[Any]", Callable[[], Any]]


def call_in_thread(call: Callable[[], T], *, name: str) -> Future[T]:
    """Make one call in a daemon thread of its own; it cannot be cancelled."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_run, args=(future, call), name=name, daemon=True).start()
    return future


class DaemonThreads:
    """At most `size` daemon threads, started when they are needed.

    The interpreter waits at its exit for the threads of a `ThreadPoolExecutor`, for as long as their calls take.
    """

    def __init__(self, size: int, *, name: str) -> None:
        self._size = size
        self._name = name
        self._lock = threading.Lock()
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run `call` in a thread; a call that has not started yet can be cancelled."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("its threads have ended; make a new store to go on.")
            self._calls.put((future, call))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._size:
                name = f"{self._name}_{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def close(self, *, waits: bool) -> None:
        """End the threads after the calls that were submitted; `waits` for them to end."""
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
        for _ in threads:
            self._calls.put(None)
        if waits:
            for thread in threads:
                thread.join()

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            future, call = taken
            if future.set_running_or_notify_cancel():
                _run(future, call)
            del taken, future, call  # so that the thread keeps no result alive while it waits for the next call

    def _next(self) -> Call | None:
        try:
            return self._calls.get_nowait()
        except Empty:
            self._idle.release()  # not earlier: a thread that takes a waiting call is not free for another one
            return self._calls.get()


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for the result
        with contextlib.suppress(RuntimeError):  # the loop that waited has ended
            future.set_exception(error)
    else:
        with contextlib.suppress(RuntimeError):
            future.set_result(result)
