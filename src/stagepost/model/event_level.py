"""The levels of events."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["EventLevel"]


class EventLevel(StrEnum):
    """Which events of a task are recorded."""

    OFF = "off"
    FINAL = "final"
