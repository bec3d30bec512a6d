"""Operations that unblock jobs, as far as their limit has free slots or their rate has tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from stagepost.database.statement import Rows, Statement, Statements, operation, query
from stagepost.model.job import microseconds
from stagepost.model.limits import LIMIT, RATE, TASK, LimitRules, task_name
from stagepost.model.rate import due_times
from stagepost.store.blocking import unblock
from stagepost.store.limits import Usage, lock_stripes, usage_of
from stagepost.store.rates import lock_bucket

__all__ = [
    "AHEAD",
    "BlockedNames",
    "Swept",
    "is_any_blocked",
    "names_with_blocked_jobs",
    "own_blocked_names",
    "sweep",
    "unblock_next",
]

AHEAD = timedelta(seconds=2)
"""How far ahead of their tokens jobs are unblocked: longer than a promoter sleeps, so that no token is left unused."""
MOST_AT_ONCE = 1000
MOST_NAMES = 500
"""How many names a sweep checks at most."""


@operation
def unblock_next(names: Iterable[str], rules: LimitRules, *, ahead: timedelta = AHEAD) -> Statements[int]:
    """Unblock the next jobs of these names, the largest priority and then the longest due first; returns how many.

    The rules define the limits and rates. A task that they do not know is left to workers that know it. If the result
    is `MOST_AT_ONCE` or more, call it again: more jobs may be unblocked.
    """
    wanted = sorted(set(names))
    through = yield from _unblock_within_limits([name for name in wanted if name.startswith(LIMIT)], rules)
    for name in wanted:
        if name.startswith(RATE):
            through += yield from _unblock_at_rate(name, rules, microseconds(ahead))
        elif name.startswith(TASK) and name.removeprefix(TASK) in rules.runs:
            through += yield from unblock((yield from _blocked(name, MOST_AT_ONCE)), forgets=True)
    return through


def _unblock_within_limits(names: Sequence[str], rules: LimitRules) -> Statements[int]:
    # Check without locks first: workers ask after every job that ends, and mostly no slot is free.
    found = yield from usage_of({name: name.removeprefix(LIMIT) for name in names})
    roomy = {name: name.removeprefix(LIMIT) for name, usage in found.items() if _room(usage, rules)}
    if not roomy:
        return 0
    yield from lock_stripes(roomy.values())
    found = yield from usage_of(roomy)
    next_: list[str] = []
    lifted: list[str] = []
    for name, usage in found.items():
        room = _room(usage, rules)
        has_rule = usage.task_name in rules.tasks
        if room == 1 and usage.first_id is not None and has_rule:
            next_.append(usage.first_id)
        elif room:
            most = min(room, MOST_AT_ONCE) if has_rule else MOST_AT_ONCE
            rows = yield Statement("blocked_jobs", {"name": name, "most": most})
            (lifted if _is_lifted(usage, rules) else next_).extend(_in_order(rows, usage, rules))
    through = yield from unblock(next_)
    through += yield from unblock(lifted, forgets=True)
    return through


def _in_order(rows: Rows, usage: Usage, rules: LimitRules) -> list[str]:
    """Choose jobs in their order, up to the first whose stored limit, if that one applies, has no free slot."""
    chosen: list[str] = []
    for job_id, task, slots in rows:
        if task not in rules.tasks and slots is not None and usage.running + usage.through + len(chosen) >= slots:
            break
        chosen.append(str(job_id))
    return chosen


def _is_lifted(usage: Usage, rules: LimitRules) -> bool:
    rule = rules.tasks.get(usage.task_name or "")
    return rule is not None and rule.max_running is None and (rule.is_remote or usage.slots is None)


def _room(usage: Usage, rules: LimitRules) -> int:
    """Return how many blocked jobs may be unblocked; zero for a task whose limit is not known here."""
    if usage.first_id is None:
        return 0
    if _is_lifted(usage, rules):
        return MOST_AT_ONCE + 1
    rule = rules.tasks.get(usage.task_name or "")
    limit = usage.slots if rule is None or rule.max_running is None else rule.max_running
    return 0 if limit is None else max(0, limit - usage.running - usage.through)


def _unblock_at_rate(name: str, rules: LimitRules, ahead_us: int) -> Statements[int]:
    rate = rules.rates.get(name)
    if rate is None:
        return (yield from _unblock_without_rate(name, rules))
    full_at, now = yield from lock_bucket(rate.name)
    usage = (yield from usage_of({name: ""}))[name]
    if not usage.has_blocked:
        return 0
    dues = due_times(
        full_at,
        now,
        rate,
        after=usage.through,
        until=now + ahead_us,
        most=MOST_AT_ONCE,
        early_us=rules.early_us,
    )
    ids = yield from _blocked(name, len(dues))
    return (yield from unblock(ids, dues=dues))


def _unblock_without_rate(name: str, rules: LimitRules) -> Statements[int]:
    """Unblock the jobs of tasks that no longer have this rate, according to the rules."""
    rows = yield Statement("blocked_jobs", {"name": name, "most": MOST_AT_ONCE})
    return (yield from unblock([str(job_id) for job_id, task, _ in rows if task in rules.runs], forgets=True))


def _blocked(name: str, most: int) -> Statements[list[str]]:
    if most <= 0:
        return []
    rows = yield Statement("blocked_jobs", {"name": name, "most": most})
    return [str(row[0]) for row in rows]


class BlockedNames(msgspec.Struct, frozen=True):
    """Which rates and tasks of one process have blocked jobs."""

    names: tuple[str, ...]
    awaits_tokens: bool
    """Whether unblocked jobs wait for their tokens, which become valid within `AHEAD`."""


@query
def own_blocked_names(rules: LimitRules) -> Statements[BlockedNames]:
    """Find the rates and tasks of these rules that have blocked jobs."""
    usage = yield from usage_of(dict.fromkeys([*rules.rates, *map(task_name, rules.runs)], ""))
    names = tuple(name for name, one in usage.items() if one.has_blocked)
    return BlockedNames(names, any(one.through for name, one in usage.items() if name in rules.rates))


@query
def names_with_blocked_jobs(names: Iterable[str]) -> Statements[list[str]]:
    """Return the names of these limits that have blocked jobs."""
    usage = yield from usage_of({name: name.removeprefix(LIMIT) for name in names})
    return [name for name, one in usage.items() if one.has_blocked]


class Swept(msgspec.Struct, frozen=True):
    """The result of one sweep."""

    through: int
    after: str | None
    """The last name checked, where the next sweep continues; None if no names were left."""


@operation
def sweep(rules: LimitRules, *, after: str = "", most: int = MOST_NAMES, ahead: timedelta = AHEAD) -> Statements[Swept]:
    """Unblock jobs of the next names, in case a worker died after a job ended and before it unblocked the next one.

    This also unblocks jobs whose limit was raised or removed in the code.
    """
    rows = yield Statement("blocked_names", {"after": after, "most": most})
    names = [name for (name,) in rows]
    through = yield from unblock_next(names, rules, ahead=ahead)
    return Swept(through, names[-1] if names else None)


@query
def is_any_blocked() -> Statements[bool]:
    """Return whether any job is blocked."""
    return bool((yield Statement("blocked_names", {"after": "", "most": 1})))
