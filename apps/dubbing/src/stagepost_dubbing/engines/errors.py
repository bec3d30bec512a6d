"""What an engine may say beyond `Permanent` and `Retryable`, for those who call it many times in a row."""

from __future__ import annotations

from stagepost import Permanent, Retryable

__all__ = ["Refused", "TimedOut", "Unavailable"]


class Unavailable(Retryable):
    """A service cannot be reached or wants fewer calls: another call now would meet the same."""


class TimedOut(Retryable):
    """A service did not answer in time; a smaller call may pass."""


class Refused(Permanent):
    """A service does not know us or what we call: no other call can succeed until a setting is changed."""
