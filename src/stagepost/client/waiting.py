"""How long to wait between two looks at something that others bring about."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from stagepost.clock import monotonic
from stagepost.errors import WaitTimeout

__all__ = ["pauses"]

FIRST_SECONDS = 0.02
LONGEST_SECONDS = 1.0


def pauses(timeout: timedelta | float | None, *, what: str, advice: str) -> Iterator[float]:
    """Yield longer and longer pauses until the timeout, then raise WaitTimeout: `what` did not happen in time."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    give_up_at = None if seconds is None else monotonic() + seconds
    pause = FIRST_SECONDS
    while True:
        left = LONGEST_SECONDS if give_up_at is None else give_up_at - monotonic()
        yield max(0.0, min(pause, left))
        if left <= 0:
            raise WaitTimeout(f"{what} within {seconds:g} s; it goes on. {advice}")
        pause = min(pause * 1.5, LONGEST_SECONDS)
