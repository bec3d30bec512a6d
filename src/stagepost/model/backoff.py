"""The one formula for delays that grow with every failure in a row."""

from __future__ import annotations

__all__ = ["backoff_seconds"]


def backoff_seconds(failures: int, *, first: float, longest: float, factor: float = 2.0) -> float:
    """Return the delay after this many failures in a row, which is multiplied by `factor` each time up to `longest`.

    `first` is the delay after one failure (or none). All durations are seconds. The caller adds jitter.
    """
    try:
        grown = first * factor ** max(failures - 1, 0)
    except OverflowError:  # a power too large for a float raises an error instead of returning infinity
        return longest if first else 0.0
    return min(grown, longest)
