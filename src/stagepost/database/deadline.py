"""Aborts calls that take too long, whatever the driver is waiting for. All limits on blocking calls are set here."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from stagepost.clock import monotonic
from stagepost.database.forks import reset_after_fork

__all__ = ["Deadlines", "Limit", "Watcher"]

Abort = Callable[[], None]
"""Ends a call from another thread; must not block."""


class Watcher:
    """Aborts calls that are late, in one thread that starts with the first call and ends when idle.

    The thread sleeps until the earliest deadline, even if that call has ended by then. So a call costs no more than
    entering and leaving a dictionary, and a process that makes few calls is not woken for each of them.
    """

    IDLE_SECONDS = 5.0

    def __init__(self) -> None:
        self._next = 0
        reset_after_fork(self)
        self.reset()

    def reset(self) -> None:
        """Start with no calls and no thread, as a forked child does: it has none of its parent's threads."""
        self._lock = threading.RLock()
        self._sooner = threading.Condition(self._lock)
        self._calls: dict[int, tuple[float, Abort, object]] = {}
        self._wakes_at = 0.0
        self._thread: threading.Thread | None = None

    def enter(self, seconds: float, abort: Abort, group: object) -> int:
        """Start to watch a call; returns a token for `leave`."""
        deadline = monotonic() + seconds
        with self._lock:
            self._next += 1
            self._calls[self._next] = (deadline, abort, group)
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

    def abort_all(self, group: object) -> None:
        """Abort every current call of a group, as if its time were up."""
        with self._lock:
            for token in [token for token, (_, _, member_of) in self._calls.items() if member_of is group]:
                self._abort(token)

    def _watch(self) -> None:
        seen = 0
        with self._lock:
            while self._calls or self._next != seen:
                seen = self._next
                now = monotonic()
                for token in [token for token, (deadline, _, _) in self._calls.items() if deadline <= now]:
                    self._abort(token)
                self._wakes_at = min(
                    (deadline for deadline, _, _ in self._calls.values()), default=now + self.IDLE_SECONDS
                )
                self._sooner.wait(self._wakes_at - now)
            self._thread = None

    def _abort(self, token: int) -> None:
        _, abort, _ = self._calls.pop(token)
        with contextlib.suppress(Exception):  # the other calls must still be watched
            abort()


_shared = Watcher()
"""One thread is enough for all stores and listeners of a process."""


class Deadlines:
    """Limits a group of calls, which can also be aborted together."""

    def __init__(self, watcher: Watcher = _shared) -> None:
        self.is_aborted = False
        """Whether the calls of this group were aborted, and no others may start."""
        self._watcher = watcher

    def limit(self, seconds: float, abort: Abort) -> Limit:
        """Return a context manager that calls `abort`, from another thread, if its body takes longer than `seconds`."""
        return Limit(self._watcher, seconds, abort, self)

    def abort_all(self) -> None:
        """Abort every current call of this group, as if its time were up; callers must start no others."""
        self.is_aborted = True
        self._watcher.abort_all(self)


class Limit:
    """Limits the time of a `with` body; a class, because every call uses one and a generator costs thrice as much."""

    __slots__ = ("_abort", "_group", "_seconds", "_token", "_watcher")

    def __init__(self, watcher: Watcher, seconds: float, abort: Abort, group: object) -> None:
        self._watcher, self._seconds, self._abort, self._group = watcher, seconds, abort, group

    def __enter__(self) -> None:
        self._token = self._watcher.enter(self._seconds, self._abort, self._group)

    def __exit__(self, *error: object) -> None:
        self._watcher.leave(self._token)
