"""What is known about one loop of a worker: `worker/loop_table.py` lists them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Generic, TypeVar

from stagepost.loops.service import Service
from stagepost.upkeep.leader import BROKER, UPKEEP

__all__ = ["WHEN_WOKEN", "Loop", "RunsOn", "Stage"]

WHEN_WOKEN = "when woken"
PartsT = TypeVar("PartsT")
"""The parts of a worker, which are not imported here because they need this module."""


class RunsOn(StrEnum):
    """Which workers do the work of a loop."""

    EVERY_WORKER = "every worker"
    LEADER = "the leader"
    BROKER_LEADER = "the leader for the broker"

    @property
    def leadership(self) -> str | None:
        """The name of the leadership that a worker needs; None if it needs none."""
        return {RunsOn.LEADER: UPKEEP, RunsOn.BROKER_LEADER: BROKER}.get(self)


class Stage(Enum):
    """When a shutdown stops a loop."""

    UPKEEP = 3
    """Last, after all outcomes are written."""
    RUNNING = 2
    """When the attempts that are running have ended and their outcomes are written."""
    INTAKE = 1
    """First, so that no more jobs come in."""


@dataclass(frozen=True)
class Loop(Generic[PartsT]):
    """One loop of a worker."""

    name: str
    part: Callable[[PartsT], Service | None]
    """Takes the loop from the worker's parts; None if the worker does not run it."""
    service: type[Service]
    stage: Stage
    runs_on: RunsOn
    interval: str
    """The time between two passes with default settings; a signal may start the next pass earlier."""
    purpose: str
    needs_broker: bool = False
