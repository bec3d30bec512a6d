"""Limits in tests: rules as code would declare them, and blocked jobs let through as a worker's sweep does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from stagepost.database.statement import Operation, Statements, operation
from stagepost.model.limits import NO_RULES, LimitRules, TaskRule
from stagepost.model.rate import RateLimit
from stagepost.store.limits import Claimed, claim_checked
from stagepost.store.unblocking import sweep

__all__ = ["claiming", "rules_of", "unblock"]

TASK, QUEUE = "send_letter", "mail"


def rules_of(*, max_running: int | None = None, rate: RateLimit | None = None, **other: Any) -> LimitRules:
    """What code says of the sample task; jobs without a limit key get the task's name."""
    rule = TaskRule(
        max_running=max_running, rate=rate, key_of=lambda limit_key, _: limit_key or TASK, needs_payload=True
    )
    return LimitRules({TASK: rule, **other})


def claiming(rules: LimitRules, *, slots: int = 10, owner: str = "worker-a", **options: Any) -> Operation[Claimed]:
    """Claim sample jobs as a worker with these rules does."""
    facts: dict[str, Any] = {"task_names": sorted(rules.runs), "lease": timedelta(seconds=30)}
    return claim_checked(QUEUE, owner=owner, slots=slots, rules=rules, **(facts | options))


@operation
def unblock(rules: LimitRules = NO_RULES) -> Statements[int]:
    """Let jobs through as far as limits have room; those of remote tasks have theirs stored. Returns how many."""
    through, after = 0, ""
    while True:
        swept = yield from sweep(rules, after=after)
        through += swept.through
        if swept.after is None:
            return through
        after = swept.after
