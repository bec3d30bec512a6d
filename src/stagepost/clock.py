"""The only reader of time: durations come from here, instants from the database."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock", "monotonic", "sleep"]

monotonic = time.monotonic
"""Real seconds that only grow, for deadlines that a test's clock must not touch."""
sleep = time.sleep


class Clock(Protocol):
    """Tells how time passes in this process; `instant` replaces the database's clock where it is set."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def instant(self) -> int | None:
        """Microseconds since 1970 to use instead of the database's clock, or None to use that."""


class SystemClock:
    """Real time; the database tells what time it is."""

    def monotonic(self) -> float:
        return time.monotonic()

    def instant(self) -> int | None:
        return None


class ManualClock:
    """Time that stands still until a test moves it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = int(start.timestamp()) * 1_000_000

    def monotonic(self) -> float:
        """Seconds, as far as time was moved."""
        return self._now / 1_000_000

    def instant(self) -> int | None:
        """What time it is until it is moved."""
        return self._now

    def advance(self, duration: timedelta | float) -> None:
        """Move time on by `duration` (a timedelta, or seconds)."""
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
        self._now += round(seconds * 1_000_000)
