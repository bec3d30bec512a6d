"""The limits and rates that tasks declare, and the names of what a job can be blocked on."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stagepost.model.rate import RateLimit

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
"""Prefixes of the names that a job can be blocked on."""
STRIPES = 64
"""The number of lock rows that all limit keys share."""


def limit_name(limit_key: str) -> str:
    """The name that blocks jobs while their limit has no free slot."""
    return LIMIT + limit_key


def rate_name(rate: RateLimit) -> str:
    """The name that blocks jobs while their rate has no token."""
    return RATE + rate.name


def task_name(task: str) -> str:
    """The name that blocks jobs of a task that no worker knows."""
    return TASK + task


def stripe_of(limit_key: str) -> int:
    """The number of the row to lock while counting a limit key's jobs; keys may share a row."""
    return zlib.crc32(limit_key.encode()) % STRIPES


def _kept(limit_key: str | None, _payload: str | None) -> str | None:
    return limit_key


@dataclass(frozen=True, slots=True)
class TaskRule:
    """The limits that the running code declares for one task."""

    max_running: int | None = None
    rate: RateLimit | None = None
    is_remote: bool = False
    needs_payload: bool = False
    """Whether the limit key is computed from the arguments if the job has no fitting one stored."""
    key_of: Callable[[str | None, str | None], str | None] = _kept
    """Returns the effective limit key, given the stored one and the payload."""

    @property
    def is_limited(self) -> bool:
        """Whether a claim must check the task's jobs."""
        return not self.is_remote and (self.max_running is not None or self.rate is not None)


@dataclass(frozen=True)
class LimitRules:
    """The rules of all tasks that a process knows, by task name."""

    tasks: Mapping[str, TaskRule] = field(default_factory=dict)

    @property
    def is_limited(self) -> bool:
        """Whether a claim must check the jobs of any task."""
        return any(rule.is_limited for rule in self.tasks.values())

    @property
    def runs(self) -> frozenset[str]:
        """The tasks that workers run, which excludes remote ones."""
        return frozenset(name for name, rule in self.tasks.items() if not rule.is_remote)

    @property
    def keyed(self) -> list[str]:
        """The tasks whose limit key is computed from the arguments."""
        return sorted(name for name, rule in self.tasks.items() if rule.needs_payload)

    @property
    def rates(self) -> dict[str, RateLimit]:
        """The tasks' rates, by the name that blocks their jobs."""
        return {rate_name(rule.rate): rule.rate for rule in self.tasks.values() if rule.rate is not None}

    def rule(self, task: str) -> TaskRule | None:
        """The rule for a task whose jobs a claim must check; None if it has no limit or rate."""
        rule = self.tasks.get(task)
        return rule if rule is not None and rule.is_limited else None


NO_RULES = LimitRules()
