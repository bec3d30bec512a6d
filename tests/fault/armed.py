"""Faults that are triggered after a number of bytes, or at a statement."""

from __future__ import annotations

import re
import threading
from enum import Enum

from tests.fault.wire import Statement


class Direction(Enum):
    TO_SERVER = "to server"
    TO_CLIENT = "to client"


class Moment(Enum):
    BEFORE_SERVER_SEES_IT = "before the server sees it"
    AFTER_SERVER_ANSWERED = "after the server answered"


class Fault:
    """A fault that is armed; counts how often it fired, and lets a test wait for it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._changed = threading.Condition()
        self._fired = 0

    @property
    def fired(self) -> int:
        with self._changed:
            return self._fired

    def wait(self, *, times: int = 1, seconds: float = 120.0) -> None:
        """Block until it has fired so often."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._fired >= times, seconds):
                raise TimeoutError(f"{self._what}: fired {self._fired} times within {seconds:g} s, not {times}")

    def fire(self) -> None:
        with self._changed:
            self._fired += 1
            self._changed.notify_all()


class ByteLimit(Fault):
    """Lets so many bytes pass, whatever the connection."""

    def __init__(self, count: int, direction: Direction | None) -> None:
        super().__init__(f"cut after {count} bytes")
        self._direction = direction
        self._left = count

    @property
    def is_used_up(self) -> bool:
        return self._left == 0

    def take(self, data: bytes, direction: Direction) -> bytes:
        """Return what of `data` may pass."""
        if self._direction not in {None, direction}:
            return data
        passing = data[: self._left]
        self._left -= len(passing)
        return passing


class StatementTrap(Fault):
    """Cuts a connection at the n-th statement that matches, and at the `times - 1` matches after it."""

    def __init__(self, pattern: bytes, moment: Moment, *, nth: int, times: int | None) -> None:
        super().__init__(f"cut at {pattern!r} {moment.value}")
        self.moment = moment
        self.matched = 0
        self._pattern = re.compile(pattern, re.IGNORECASE)
        self._first = nth
        self._last = None if times is None else nth + times - 1

    def catches(self, statement: Statement) -> bool:
        if not self._pattern.search(statement.text):
            return False
        self.matched += 1
        return self.matched >= self._first and (self._last is None or self.matched <= self._last)
