"""The only reader of time: durations come from here, instants from the database."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock", "monotonic", "sleep"]

monotonic = time.monotonic
"""Real seconds that only grow, for deadlines that a test's clock must not affect."""
sleep = time.sleep


class Clock(Protocol):
    """Measures time in this process; `instant` replaces the database's clock if it returns a value."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def instant(self) -> int | None:
        """Microseconds since 1970 to use instead of the database's clock, or None to use that."""


class SystemClock:
    """Real time; instants come from the database."""

    def monotonic(self) -> float:
        return time.monotonic()

    def instant(self) -> int | None:
        return None
