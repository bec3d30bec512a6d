"""Aborts calls that take too long, whatever the driver is waiting for. All limits on blocking calls are set here."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from stagepost.clock import monotonic
from stagepost.database.forks import renew_after_fork

__all__ = ["Deadlines", "Limit"]


class Limit:
    """Limits the time of a `with` body; a class, because every call uses one and a generator costs thrice as much."""

    __slots__ = ("_abort", "_deadlines", "_seconds", "_token")

    def __init__(self, deadlines: Deadlines, seconds: float, abort: Callable[[], None]) -> None:
        self._deadlines, self._seconds, self._abort = deadlines, seconds, abort

    def __enter__(self) -> None:
        self._token = self._deadlines.enter(self._seconds, self._abort)

    def __exit__(self, *error: object) -> None:
        self._deadlines.leave(self._token)


class Deadlines:
    """Watches calls and aborts those that are late, in one thread that starts with the first call and ends when idle.

    The thread sleeps until the earliest deadline, even if that call has ended by then. So a call costs no more than
    entering and leaving a dictionary, and a process that makes few calls is not woken for each of them.
    """

    IDLE_SECONDS = 5.0

    def __init__(self) -> None:
        renew_after_fork(self)
        self.renew()

    def renew(self) -> None:
        """Start with no calls and no thread, as a forked child does: it has none of its parent's threads."""
        self._lock = threading.RLock()
        self._sooner = threading.Condition(self._lock)
        self._calls: dict[int, tuple[float, Callable[[], None]]] = {}
        self._next = 0
        self._wakes_at = 0.0
        self._thread: threading.Thread | None = None

    def limit(self, seconds: float, abort: Callable[[], None]) -> Limit:
        """Return a context manager that calls `abort`, from another thread, if its body takes longer than `seconds`."""
        return Limit(self, seconds, abort)

    def enter(self, seconds: float, abort: Callable[[], None]) -> int:
        """Start to watch a call; returns a token for `leave`."""
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
        """Stop watching a call."""
        # Takes the lock, because the connection may serve another call afterwards and must not be aborted then.
        with self._lock:
            self._calls.pop(token, None)

    def abort_all(self) -> None:
        """Abort every current call, as if its time were up."""
        with self._lock:
            while self._calls:
                _, (_, abort_call) = self._calls.popitem()
                with contextlib.suppress(Exception):
                    abort_call()

    def _watch(self) -> None:
        seen = 0
        with self._lock:
            while self._calls or self._next != seen:
                seen = self._next
                now = monotonic()
                for token in [token for token, (deadline, _) in self._calls.items() if deadline <= now]:
                    _, abort = self._calls.pop(token)
                    with contextlib.suppress(Exception):  # the other calls must still be watched
                        abort()
                self._wakes_at = min(
                    (deadline for deadline, _ in self._calls.values()), default=now + self.IDLE_SECONDS
                )
                self._sooner.wait(self._wakes_at - now)
            self._thread = None
