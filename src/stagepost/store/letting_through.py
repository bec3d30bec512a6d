"""Operations that let blocked jobs go on: as many as their limit has room for, their rate has tokens for, or all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from stagepost.database.statement import Rows, Statement, Statements, as_json, operation, query
from stagepost.model.job import microseconds
from stagepost.model.lifecycle import JobState
from stagepost.model.limits import LIMIT, RATE, TASK, LimitRules, task_name
from stagepost.model.rate import due_times
from stagepost.store.counting import record_moves
from stagepost.store.limits import Usage, lock_stripes, usage_of
from stagepost.store.rates import lock_bucket

__all__ = ["AHEAD", "Swept", "Waits", "is_any_blocked", "let_through", "names_with_line", "own_waits", "sweep"]

AHEAD = timedelta(seconds=2)
"""How far ahead of their tokens jobs are let through: longer than the time between two looks, so none is idle."""
MOST_AT_ONCE = 1000
MOST_NAMES = 500
"""How many names a sweep looks at; it may be fewer, though there are more."""


@operation
def let_through(names: Iterable[str], rules: LimitRules, *, ahead: timedelta = AHEAD) -> Statements[int]:
    """Let jobs through that are blocked on these names, the largest priority and then the longest due first.

    What a limit or rate is, the rules say; names of tasks that they do not know are left to others. Returns how many
    jobs went through; where that is `MOST_AT_ONCE` or more, others may follow at once.
    """
    wanted = sorted(set(names))
    through = yield from _through_limits([name for name in wanted if name.startswith(LIMIT)], rules)
    for name in wanted:
        if name.startswith(RATE):
            through += yield from _through_rate(name, rules, microseconds(ahead))
        elif name.startswith(TASK) and name.removeprefix(TASK) in rules.runs:
            through += yield from _release((yield from _blocked(name, MOST_AT_ONCE)), forgets=True)
    return through


def _through_limits(names: Sequence[str], rules: LimitRules) -> Statements[int]:
    # Looked at before anything is locked: mostly there is no room, and those who end jobs ask often.
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
    through = yield from _release(next_)
    through += yield from _release(lifted, forgets=True)
    return through


def _in_order(rows: Rows, usage: Usage, rules: LimitRules) -> list[str]:
    """Choose jobs in their order while each one's own limit, where the stored ones are in force, leaves room."""
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
    """Say how many of those in line may go through; none of a task whose limit is not known here."""
    if usage.first_id is None:
        return 0
    if _is_lifted(usage, rules):
        return MOST_AT_ONCE + 1
    rule = rules.tasks.get(usage.task_name or "")
    limit = usage.slots if rule is None or rule.max_running is None else rule.max_running
    return 0 if limit is None else max(0, limit - usage.running - usage.through)


def _through_rate(name: str, rules: LimitRules, ahead_us: int) -> Statements[int]:
    rate = rules.rates.get(name)
    if rate is None:
        return (yield from _through_lifted_rate(name, rules))
    full_at, now = yield from lock_bucket(rate.name)
    usage = (yield from usage_of({name: ""}))[name]
    if not usage.has_line:
        return 0
    dues = due_times(full_at, now, rate, after=usage.through, until=now + ahead_us, most=MOST_AT_ONCE)
    ids = yield from _blocked(name, len(dues))
    return (yield from _release(ids, dues=dues))


def _through_lifted_rate(name: str, rules: LimitRules) -> Statements[int]:
    """Let jobs through whose task has this rate no longer, as far as the rules know."""
    rows = yield Statement("blocked_jobs", {"name": name, "most": MOST_AT_ONCE})
    return (yield from _release([str(job_id) for job_id, task, _ in rows if task in rules.runs], forgets=True))


def _blocked(name: str, most: int) -> Statements[list[str]]:
    if most <= 0:
        return []
    rows = yield Statement("blocked_jobs", {"name": name, "most": most})
    return [str(row[0]) for row in rows]


def _release(ids: Sequence[str], *, dues: Sequence[int] = (), forgets: bool = False) -> Statements[int]:
    """Queue blocked jobs, or schedule them for the instants in `dues`; `forgets` what they were blocked on."""
    if not ids:
        return 0
    moments: Sequence[int | None] = dues or [None] * len(ids)
    due_at = dict(zip(ids, moments, strict=False))
    jobs = as_json([{"id": job_id, "due_at": due_at[job_id]} for job_id in sorted(due_at)])
    found = yield Statement("let_through_jobs", {"jobs": jobs, "forgets": int(forgets)})
    yield from record_moves((queue_name, batch_id, JobState.BLOCKED, state) for _, queue_name, batch_id, state in found)
    return len(found)


class Waits(msgspec.Struct, frozen=True):
    """What is known of a process's own rates and tasks."""

    names: tuple[str, ...]
    """Those that jobs are blocked on."""
    awaits_tokens: bool
    """Whether jobs were let through to start within `AHEAD`."""


@query
def own_waits(rules: LimitRules) -> Statements[Waits]:
    """Find the rates and tasks of these rules that have blocked jobs."""
    usage = yield from usage_of(dict.fromkeys([*rules.rates, *map(task_name, rules.runs)], ""))
    names = tuple(name for name, one in usage.items() if one.has_line)
    return Waits(names, any(one.through for name, one in usage.items() if name in rules.rates))


@query
def names_with_line(names: Iterable[str]) -> Statements[list[str]]:
    """Tell which of these limits have jobs that are blocked on them."""
    usage = yield from usage_of({name: name.removeprefix(LIMIT) for name in names})
    return [name for name, one in usage.items() if one.has_line]


class Swept(msgspec.Struct, frozen=True):
    """What a look at some of the names gave."""

    through: int
    after: str | None
    """The last name, from which to go on; None if there was none."""


@operation
def sweep(rules: LimitRules, *, after: str = "", most: int = MOST_NAMES, ahead: timedelta = AHEAD) -> Statements[Swept]:
    """Let jobs through that are blocked on the next names: heals whatever died between an end and what should follow.

    It also lets go what waits for a limit that was raised or lifted in the code.
    """
    rows = yield Statement("blocked_names", {"after": after, "most": most})
    names = [name for (name,) in rows]
    through = yield from let_through(names, rules, ahead=ahead)
    return Swept(through, names[-1] if names else None)


@query
def is_any_blocked() -> Statements[bool]:
    """Say whether any job is blocked."""
    return bool((yield Statement("blocked_names", {"after": "", "most": 1})))
