"""Errors of engines beyond `Permanent` and `Retryable`, for callers that make many calls in a row."""

from __future__ import annotations

from stagepost import Permanent, Retryable

__all__ = ["Refused", "TimedOut", "Unavailable"]


class Unavailable(Retryable):
    """A service cannot be reached or limits the rate, so another call now would fail too."""


class TimedOut(Retryable):
    """A service did not answer in time; a smaller call may succeed."""


class Refused(Permanent):
    """A service rejects our key or address, so no call can succeed until a setting is changed."""
