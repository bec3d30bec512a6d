"""Breaks off calls that take too long, whatever the driver is waiting for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stagepost.clock import monotonic
from stagepost.store.forks import renew_after_fork

__all__ = ["Deadlines", "Limit"]


class Limit:
    """A body whose time is limited; a class because every call of ours is in one, and a generator costs thrice."""

    __slots__ = ("_abort", "_deadlines", "_seconds", "_token")

    def __init__(self, deadlines: Deadlines, seconds: float, abort: Callable[[], None]) -> None:
        self._deadlines, self._seconds, self._abort = deadlines, seconds, abort

    def __enter__(self) -> None:
        self._token = self._deadlines.enter(self._seconds, self._abort)

    def __exit__(self, *error: object) -> None:
        self._deadlines.leave(self._token)


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

    def limit(self, seconds: float, abort: Callable[[], None]) -> Limit:
        """Call `abort` from another thread if the body is not done after `seconds`."""
        return Limit(self, seconds, abort)

    def enter(self, seconds: float, abort: Callable[[], None]) -> int:
        """Watch a call from now on; returns what `leave` takes."""
        with self._changed:
            self._next += 1
            self._calls[self._next] = (monotonic() + seconds, abort)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="stagepost-deadlines", daemon=True)
                self._thread.start()
            return self._next

    def leave(self, token: int) -> None:
        """Watch it no longer."""
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
