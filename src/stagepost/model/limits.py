"""What can hold a job back, by name, and what the code in force says of it: limits, rates, and tasks that are known."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from stagepost.model.rate import MOST_EARLY_US, RateLimit

__all__ = [
    "LIMIT",
    "NO_RULES",
    "RATE",
    "TASK",
    "LimitRules",
    "TaskRule",
    "limit_name",
    "rate_name",
    "stripe_of",
    "task_name",
]

LIMIT, RATE, TASK = "limit:", "rate:", "task:"
"""How the names of what a job is blocked on begin."""
STRIPES = 64
"""How many rows there are to lock for all limit keys together."""


def limit_name(limit_key: str) -> str:
    """Name what holds jobs for which their limit has no room."""
    return LIMIT + limit_key


def rate_name(rate: RateLimit) -> str:
    """Name what holds jobs for which their rate has no token."""
    return RATE + rate.name


def task_name(task: str) -> str:
    """Name what holds jobs of a task that no worker knows."""
    return TASK + task


def stripe_of(limit_key: str) -> int:
    """Choose the row that is locked to count under a limit key; keys may share one."""
    return zlib.crc32(limit_key.encode()) % STRIPES


def _kept(limit_key: str | None, _payload: str | None) -> str | None:
    return limit_key


@dataclass(frozen=True, slots=True)
class TaskRule:
    """What the code in force says of one task's jobs."""

    max_running: int | None = None
    rate: RateLimit | None = None
    is_remote: bool = False
    needs_payload: bool = False
    """Its limit key follows from the arguments, where a job has none that fits."""
    key_of: Callable[[str | None, str | None], str | None] = _kept
    """Gives the limit key in force, from the stored one and the payload."""

    @property
    def is_limited(self) -> bool:
        """Whether a claim has to check its jobs."""
        return not self.is_remote and (self.max_running is not None or self.rate is not None)


@dataclass(frozen=True)
class LimitRules:
    """What one process knows of tasks, by their names; these do not change."""

    tasks: Mapping[str, TaskRule] = field(default_factory=dict)
    early_us: int = MOST_EARLY_US
    """How long before its token is valid a job may be claimed; longer than a due job usually waits for its claim."""

    @cached_property
    def is_limited(self) -> bool:
        """Whether claims have to check jobs of any task."""
        return any(rule.is_limited for rule in self.tasks.values())

    @cached_property
    def runs(self) -> frozenset[str]:
        """The tasks that its workers run."""
        return frozenset(name for name, rule in self.tasks.items() if not rule.is_remote)

    @cached_property
    def keyed(self) -> list[str]:
        """The tasks whose limit keys follow from arguments."""
        return sorted(name for name, rule in self.tasks.items() if rule.needs_payload)

    @cached_property
    def rates(self) -> dict[str, RateLimit]:
        """The rates of its tasks, by the names of what they hold jobs on."""
        return {rate_name(rule.rate): rule.rate for rule in self.tasks.values() if rule.rate is not None}

    def rule(self, task: str) -> TaskRule | None:
        """The rule for a task whose jobs a claim has to check; None if it has none."""
        rule = self.tasks.get(task)
        return rule if rule is not None and rule.is_limited else None


NO_RULES = LimitRules()
