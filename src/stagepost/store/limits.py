"""Operations that keep claims within limits and rates: what a claim found over one is held, in the same transaction.

Locks are taken in one order: a queue's row, jobs, stripes of limit keys, buckets of rates. Who has one of the last two
never waits for a job, so nobody waits in a circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from stagepost.database.statement import Statement, Statements, as_json, operation
from stagepost.model.job import LeasedJob, microseconds
from stagepost.model.lifecycle import JobState
from stagepost.model.limits import LimitRules, limit_name, rate_name, stripe_of, task_name
from stagepost.model.rate import RateLimit, take
from stagepost.store.counting import record_moves
from stagepost.store.leases import claim
from stagepost.store.queues import within_limits
from stagepost.store.rates import lock_bucket
from stagepost.store.workers import ALIVE_WITHIN, list_workers

__all__ = ["Claimed", "Front", "Usage", "claim_checked", "hold_excess", "hold_front", "lock_stripes", "usage_of"]

MOST_IN_FRONT = 1000


class Usage(NamedTuple):
    """How many jobs a name lets run, and who waits for it."""

    name: str
    running: int
    """Under the limit key."""
    through: int
    """Let through and not claimed yet: their places are taken."""
    first_id: str | None
    """The first job that is blocked on it."""
    task_name: str | None
    """That job's task."""
    slots: int | None
    """The limit that is stored with that job, if its task is remote."""

    @property
    def has_line(self) -> bool:
        """Whether a job that comes now is not the first."""
        return self.first_id is not None


def usage_of(names: Mapping[str, str]) -> Statements[dict[str, Usage]]:
    """Count what runs and waits, given names of what jobs are blocked on and their limit keys, if it is a limit."""
    if not names:
        return {}
    asked = [{"name": name, "limit_key": limit_key} for name, limit_key in sorted(names.items())]
    rows = yield Statement("limit_usage", {"names": as_json(asked)})
    found = [Usage(*row) for row in rows]
    return {one.name: one._replace(first_id=one.first_id and str(one.first_id)) for one in found}


def lock_stripes(limit_keys: Iterable[str]) -> Statements[None]:
    """Wait until nobody else counts what runs under these keys; those who count at once would see the same room."""
    stripes = sorted({stripe_of(key) for key in limit_keys})
    wanted = {"stripes": as_json(stripes)}
    while stripes and len((yield Statement("lock_stripes", wanted))) < len(stripes):
        yield Statement("add_stripes", wanted)


class Claimed(msgspec.Struct, frozen=True):
    """What a claim gave."""

    jobs: list[LeasedJob]
    held: frozenset[str] = frozenset()
    """Names of what other jobs, that it found first, are blocked on now."""


@operation
def claim_checked(
    queue_name: str,
    *,
    owner: str,
    task_names: Sequence[str],
    slots: int,
    lease: timedelta,
    rules: LimitRules,
    marks: Mapping[int, int] | None = None,
    is_limited: bool = False,
) -> Statements[Claimed]:
    """Lease jobs as `claim` does, and hold the jobs that exceed a limit or rate of their task.

    `is_limited` says that the queue may have limits of its own.
    """
    held: set[str] = set()

    def lease_some(room: int) -> Statements[list[LeasedJob]]:
        found = yield from claim(queue_name, owner=owner, task_names=task_names, slots=room, lease=lease, marks=marks)
        checked = yield from hold_excess(found, rules)
        held.update(checked.held)
        return checked.jobs

    jobs = yield from within_limits(queue_name, slots, lease_some) if is_limited else lease_some(slots)
    return Claimed(jobs, frozenset(held))


def hold_excess(jobs: list[LeasedJob], rules: LimitRules) -> Statements[Claimed]:
    """Keep those of the jobs just claimed that may start, in their order; the others never were claimed.

    The limits in force are those of the code that claims, and the limit keys those that it gives.
    """
    checked = [job for job in jobs if rules.rule(job.task_name) is not None]
    if not checked:
        return Claimed(jobs)
    keys = {job.id: key for job in checked if (key := _key_in_force(job, rules)) is not None}
    held = yield from _over_limits([job for job in checked if job.id in keys], keys, jobs, rules)
    held |= yield from _over_rates([job for job in checked if job.id not in held], rules)
    current = [msgspec.structs.replace(job, limit_key=keys.get(job.id, job.limit_key)) for job in jobs]
    yield from _hold(
        [Held(job.id, job.attempt, held[job.id], job.limit_key) for job in current if job.id in held],
        was=JobState.RUNNING,
        owner=jobs[0].owner,
    )
    stored = {job.id: job.limit_key for job in jobs}
    kept = [job for job in current if job.id not in held]
    changed = [job for job in kept if job.limit_key != stored[job.id]]
    if changed:
        rows = [{"id": job.id, "attempt": job.attempt, "limit_key": job.limit_key} for job in changed]
        yield Statement("write_limit_keys", {"jobs": as_json(rows), "owner": jobs[0].owner})
    return Claimed(kept, frozenset(held.values()))


def _key_in_force(job: LeasedJob, rules: LimitRules) -> str | None:
    rule = rules.rule(job.task_name)
    return None if rule is None or rule.max_running is None else rule.key_of(job.limit_key, job.payload)


def _over_limits(
    checked: Sequence[LeasedJob], keys: Mapping[str, str], claimed: Collection[LeasedJob], rules: LimitRules
) -> Statements[dict[str, str]]:
    """Say which jobs are over their limit, and the names of what they have to wait for."""
    yield from lock_stripes(keys.values())
    usage = yield from usage_of({limit_name(key): key for key in keys.values()})
    own = Counter(job.limit_key for job in claimed)  # counted as running, like those of others
    taken = {limit_name(key): usage[limit_name(key)].running - own[key] for key in keys.values()}
    held: dict[str, str] = {}
    for job in sorted(checked, key=lambda job: job.blocked_on != limit_name(keys[job.id])):
        name, rule = limit_name(keys[job.id]), rules.tasks[job.task_name]
        was_let_through = job.blocked_on == name
        # A newcomer takes no place that is promised, and goes to the end of the line if there is one.
        promised = 0 if was_let_through else usage[name].through
        is_next = was_let_through or not usage[name].has_line
        if is_next and rule.max_running is not None and taken[name] + promised < rule.max_running:
            taken[name] += 1
        else:
            held[job.id] = name
    return held


def _over_rates(checked: Sequence[LeasedJob], rules: LimitRules) -> Statements[dict[str, str]]:
    """Take a token for each job that has a rate; say which got none, and what they have to wait for."""
    metered: dict[str, list[LeasedJob]] = {}
    for job in checked:
        if (rate := rules.tasks[job.task_name].rate) is not None:
            metered.setdefault(rate_name(rate), []).append(job)
    rates, buckets = rules.rates, {}
    for name in sorted(metered):
        buckets[name] = yield from lock_bucket(rates[name].name)
    usage = yield from usage_of(dict.fromkeys(metered, ""))
    held: dict[str, str] = {}
    for name, jobs in metered.items():
        has_line = usage[name].has_line or usage[name].through > 0
        first = [job for job in jobs if job.blocked_on is not None]
        newcomers = [job for job in jobs if job.blocked_on is None]
        allowed = first if has_line else first + newcomers
        granted = yield from _take(rates[name], buckets[name], len(allowed))
        started = {job.id for job in allowed[:granted]}
        held |= {job.id: name for job in jobs if job.id not in started}
    return held


def _take(rate: RateLimit, bucket: tuple[int, int], wanted: int) -> Statements[int]:
    taken = take(*bucket, wanted, rate)
    if taken.granted:
        yield Statement("fill_rate", {"name": rate.name, "full_at": taken.full_at})
    return taken.granted


class Held(NamedTuple):
    """A job to be held, if it is still at that attempt."""

    id: str
    attempt: int
    blocked_on: str
    limit_key: str | None


def _hold(jobs: Sequence[Held], *, was: JobState, owner: str) -> Statements[int]:
    if not jobs:
        return 0
    rows = [job._asdict() for job in sorted(jobs)]
    found = yield Statement("hold_jobs", {"jobs": as_json(rows), "owner": owner})
    yield from record_moves((queue_name, batch_id, was, JobState.BLOCKED) for _, queue_name, batch_id in found)
    return len(found)


class Front(msgspec.Struct, frozen=True):
    """What the first jobs of a queue were, and how many of them may not start."""

    looked_at: int
    held: int
    names: frozenset[str] = frozenset()
    """What those are blocked on now."""


class Waiting(NamedTuple):
    """A queued job near the front."""

    id: str
    task_name: str
    limit_key: str | None
    blocked_on: str | None
    attempts: int
    payload: str | None = None


@operation
def hold_front(queue_name: str, rules: LimitRules, *, most: int = MOST_IN_FRONT) -> Statements[Front]:
    """Hold those of a queue's first jobs that no claim can start now, so that claims need not walk over them.

    Held are jobs behind others that wait for the same limit or rate, jobs whose limit has no room at all, and jobs of
    tasks that neither this process nor any live worker knows.
    """
    facts = {"queue_name": queue_name, "most": most}
    rows = yield Statement("front_jobs", facts | {"keyed": as_json(rules.keyed)} if rules.keyed else facts)
    front = [Waiting(str(row[0]), *row[1:]) for row in rows]
    newcomers = [job for job in front if job.blocked_on is None]
    holds = yield from _of_unknown_tasks(newcomers, rules)
    holds += yield from _behind_others([job for job in newcomers if rules.rule(job.task_name) is not None], rules)
    held = yield from _hold(holds, was=JobState.QUEUED, owner="")
    return Front(len(front), held, frozenset(hold.blocked_on for hold in holds))


def _of_unknown_tasks(jobs: Sequence[Waiting], rules: LimitRules) -> Statements[list[Held]]:
    unknown = {job.task_name for job in jobs} - rules.runs
    if not unknown:
        return []
    workers = yield from list_workers()
    alive = [worker for worker in workers if worker.silent_us <= microseconds(ALIVE_WITHIN)]
    unknown -= {task for worker in alive for task in worker.tasks}
    return [
        Held(job.id, job.attempts, task_name(job.task_name), job.limit_key) for job in jobs if job.task_name in unknown
    ]


def _behind_others(jobs: Sequence[Waiting], rules: LimitRules) -> Statements[list[Held]]:
    named: list[tuple[Waiting, str | None, str | None]] = []
    names: dict[str, str] = {}
    for job in jobs:
        rule = rules.tasks[job.task_name]
        key = None if rule.max_running is None else rule.key_of(job.limit_key, job.payload)
        rate = None if rule.rate is None else rate_name(rule.rate)
        names |= ({} if key is None else {limit_name(key): key}) | ({} if rate is None else {rate: ""})
        named.append((job, key, rate))
    usage = yield from usage_of(names)
    holds: list[Held] = []
    for job, key, rate in named:
        limit = None if key is None else limit_name(key)
        if limit is not None and _is_full(usage[limit], rules.tasks[job.task_name].max_running):
            holds.append(Held(job.id, job.attempts, limit, key))
        elif rate is not None and (usage[rate].has_line or usage[rate].through):
            holds.append(Held(job.id, job.attempts, rate, key or job.limit_key))
    return holds


def _is_full(usage: Usage, limit: int | None) -> bool:
    return limit is not None and (usage.has_line or usage.running + usage.through >= limit)
