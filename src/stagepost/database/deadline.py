"""Breaks off calls that take too long, whatever the driver is waiting for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from stagepost.clock import monotonic
from stagepost.database.forks import renew_after_fork

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
    """One thread that aborts the calls whose time is up; it starts with the first call and ends when idle.

    It sleeps until the first of them is due, whether or not that has ended by then: entering and leaving is all that
    a call costs, and a process that calls now and then is not woken for it.
    """

    IDLE_SECONDS = 5.0

    def __init__(self) -> None:
        self.is_aborted = False
        renew_after_fork(self)
        self.renew()

    def renew(self) -> None:
        """Begin with no calls and no thread; in a forked child those of the parent are not there."""
        self._lock = threading.RLock()
        self._sooner = threading.Condition(self._lock)
        self._calls: dict[int, tuple[float, Callable[[], None]]] = {}
        self._next = 0
        self._wakes_at = 0.0
        self._thread: threading.Thread | None = None

    def limit(self, seconds: float, abort: Callable[[], None]) -> Limit:
        """Call `abort` from another thread if the body is not done after `seconds`."""
        return Limit(self, seconds, abort)

    def enter(self, seconds: float, abort: Callable[[], None]) -> int:
        """Watch a call from now on; returns what `leave` takes."""
        deadline = monotonic() + seconds
        with self._lock:
            self._next += 1
            self._calls[self._next] = (deadline, abort)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="stagepost-deadlines", daemon=True)
                self._thread.start()
            elif deadline < self._wakes_at:
                self._sooner.notify()
            return self._next

    def leave(self, token: int) -> None:
        """Watch it no longer."""
        # Under the lock: once the body is left, its connection may serve another call and must not be aborted.
        with self._lock:
            self._calls.pop(token, None)

    def abort_all(self) -> None:
        """Abort every running call, as if its time were up. Callers must start no others."""
        self.is_aborted = True
        with self._lock:
            while self._calls:
                _, (_, break_off) = self._calls.popitem()
                with contextlib.suppress(Exception):
                    break_off()

    def _watch(self) -> None:
        seen = 0
        with self._lock:
            while self._calls or self._next != seen:
                seen = self._next
                now = monotonic()
                for token in [token for token, (deadline, _) in self._calls.items() if deadline <= now]:
                    _, abort = self._calls.pop(token)
                    with contextlib.suppress(Exception):  # the others must not be left unwatched
                        abort()
                self._wakes_at = min(
                    (deadline for deadline, _ in self._calls.values()), default=now + self.IDLE_SECONDS
                )
                self._sooner.wait(self._wakes_at - now)
            self._thread = None
