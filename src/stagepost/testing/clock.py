"""A clock for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from stagepost.model.option_types import check_type

__all__ = ["ManualClock"]


class ManualClock:
    """Time that stands still until a test moves it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        check_type("ManualClock: start", start, datetime)
        self._now = int(start.timestamp()) * 1_000_000

    def monotonic(self) -> float:
        """Seconds by which time was moved so far."""
        return self._now / 1_000_000

    def instant(self) -> int | None:
        """The current time, in microseconds since 1970; it changes only when it is moved."""
        return self._now

    def advance(self, duration: timedelta | float) -> None:
        """Move time forward by `duration` (a timedelta, or seconds)."""
        check_type("ManualClock: duration", duration, timedelta | float)
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
        self._now += round(seconds * 1_000_000)
