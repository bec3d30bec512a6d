"""Breaks off calls that take too long, whatever the driver is waiting for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from stagepost.clock import monotonic
from stagepost.store.forks import renew_after_fork

__all__ = ["Deadlines"]


class Deadlines:
    """One thread that aborts the calls whose time is up; it starts with the first call and ends when idle."""

    IDLE_SECONDS = 5.0

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: dict[int, tuple[float, Callable[[], None]]] = {}
        self._next = 0
        self._thread: threading.Thread | None = None
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget the calls of the parent, and its thread, which the child does not have."""
        self._changed = threading.Condition()
        self._calls = {}
        self._thread = None

    @contextlib.contextmanager
    def limit(self, seconds: float, abort: Callable[[], None]) -> Iterator[None]:
        """Call `abort` from another thread if the body is not done after `seconds`."""
        with self._changed:
            self._next += 1
            token = self._next
            self._calls[token] = (monotonic() + seconds, abort)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="stagepost-deadlines", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            # Under the lock: once the body is left, its connection may serve another call and must not be aborted.
            with self._changed:
                self._calls.pop(token, None)

    def _watch(self) -> None:
        idle_since = monotonic()
        with self._changed:
            while True:
                now = monotonic()
                for token in [token for token, (deadline, _) in self._calls.items() if deadline <= now]:
                    _, abort = self._calls.pop(token)
                    abort()
                if self._calls:
                    idle_since = now
                elif now - idle_since > self.IDLE_SECONDS:
                    self._thread = None
                    return
                self._changed.wait(0.25)
