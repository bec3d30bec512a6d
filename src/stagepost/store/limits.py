"""Operations that keep claims within limits and rates: a claim blocks the jobs over a limit in the same transaction.

Locks are taken in one order: a queue's row, jobs, stripes of limit keys, buckets of rates. A transaction that holds one
of the last two never waits for a job, so there are no deadlocks.
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
from stagepost.model.rate import take, token_times
from stagepost.store.blocking import JobToBlock, block, unblock
from stagepost.store.leases import claim
from stagepost.store.queues import within_limits
from stagepost.store.rates import lock_bucket
from stagepost.store.workers import ALIVE_WITHIN, list_workers

__all__ = ["Claimed", "Front", "Usage", "block_excess", "block_front", "claim_checked", "lock_stripes", "usage_of"]

MOST_IN_FRONT = 1000


class Usage(NamedTuple):
    """How many jobs run under a limit or rate, and the first job that is blocked on it."""

    name: str
    running: int
    """Running jobs with the limit key."""
    through: int
    """Jobs that were unblocked and not claimed yet; they count against the limit."""
    first_id: str | None
    """The first job that is blocked on it."""
    task_name: str | None
    """That job's task."""
    slots: int | None
    """The limit that is stored with that job, if its task is remote."""

    @property
    def has_blocked(self) -> bool:
        """Whether a job is blocked on it, so that new jobs must wait behind that one."""
        return self.first_id is not None


def usage_of(names: Mapping[str, str]) -> Statements[dict[str, Usage]]:
    """Read the usage of limits and rates; the mapping gives the limit key of each name, empty for rates and tasks."""
    if not names:
        return {}
    asked = [{"name": name, "limit_key": limit_key} for name, limit_key in sorted(names.items())]
    rows = yield Statement("limit_usage", {"names": as_json(asked)})
    found = [Usage(*row) for row in rows]
    return {one.name: one._replace(first_id=one.first_id and str(one.first_id)) for one in found}


def lock_stripes(limit_keys: Iterable[str]) -> Statements[None]:
    """Lock the counting of these keys: two transactions that counted at once would both take the same free slot."""
    stripes = sorted({stripe_of(key) for key in limit_keys})
    wanted = {"stripes": as_json(stripes)}
    while stripes and len((yield Statement("lock_stripes", wanted))) < len(stripes):
        yield Statement("add_stripes", wanted)


class Claimed(msgspec.Struct, frozen=True):
    """The result of a claim."""

    jobs: list[LeasedJob]
    blocked_on: frozenset[str] = frozenset()
    """Limits and rates that this claim blocked other jobs on."""
    is_any_scheduled: bool = False
    """Whether this claim scheduled jobs for their next tokens."""


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
    """Lease jobs as `claim` does, and block the jobs that exceed a limit or rate of their task.

    `is_limited` means that the queue may have limits of its own.
    """
    blocked_on: set[str] = set()
    is_any_scheduled = False

    def lease_some(room: int) -> Statements[list[LeasedJob]]:
        found = yield from claim(queue_name, owner=owner, task_names=task_names, slots=room, lease=lease, marks=marks)
        checked = yield from block_excess(found, rules)
        blocked_on.update(checked.blocked_on)
        nonlocal is_any_scheduled
        is_any_scheduled |= checked.is_any_scheduled
        return checked.jobs

    jobs = yield from within_limits(queue_name, slots, lease_some) if is_limited else lease_some(slots)
    return Claimed(jobs, frozenset(blocked_on), is_any_scheduled=is_any_scheduled)


def block_excess(jobs: list[LeasedJob], rules: LimitRules) -> Statements[Claimed]:
    """Return the claimed jobs that may start, in their order; undo the claim of the others and block them.

    The limits and limit keys of the claiming worker's code apply.
    """
    checked = [job for job in jobs if rules.rule(job.task_name) is not None]
    if not checked:
        return Claimed(jobs)
    keys = {job.id: key for job in checked if (key := _current_key(job, rules)) is not None}
    over = yield from _over_limits([job for job in checked if job.id in keys], keys, jobs, rules)
    tokens = yield from _take_tokens([job for job in checked if job.id not in over], rules)
    blocked_on = over | tokens.missing | tokens.late
    current = [_as_checked(job, keys, tokens.starts_in_us) for job in jobs]
    yield from block(
        [JobToBlock(job.id, job.attempt, blocked_on[job.id], job.limit_key) for job in current if job.id in blocked_on],
        was=JobState.RUNNING,
        owner=jobs[0].owner,
    )
    yield from unblock(list(tokens.dues), dues=list(tokens.dues.values()))
    stored = {job.id: job.limit_key for job in jobs}
    kept = [job for job in current if job.id not in blocked_on]
    changed = [job for job in kept if job.limit_key != stored[job.id]]
    if changed:
        rows = [{"id": job.id, "attempt": job.attempt, "limit_key": job.limit_key} for job in changed]
        yield Statement("write_limit_keys", {"jobs": as_json(rows), "owner": jobs[0].owner})
    return Claimed(kept, frozenset({**over, **tokens.missing}.values()), is_any_scheduled=bool(tokens.dues))


def _as_checked(job: LeasedJob, keys: Mapping[str, str], starts_in_us: Mapping[str, int]) -> LeasedJob:
    """Set the job's current limit key, and how long to wait for its token."""
    key, wait = keys.get(job.id, job.limit_key), starts_in_us.get(job.id, 0)
    return msgspec.structs.replace(job, limit_key=key, starts_in_us=wait) if wait or key != job.limit_key else job


def _current_key(job: LeasedJob, rules: LimitRules) -> str | None:
    rule = rules.rule(job.task_name)
    return None if rule is None or rule.max_running is None else rule.key_of(job.limit_key, job.payload)


def _over_limits(
    checked: Sequence[LeasedJob], keys: Mapping[str, str], claimed: Collection[LeasedJob], rules: LimitRules
) -> Statements[dict[str, str]]:
    """Return the jobs that are over their limit, and the name of the limit that blocks each."""
    yield from lock_stripes(keys.values())
    usage = yield from usage_of({limit_name(key): key for key in keys.values()})
    own = Counter(job.limit_key for job in claimed)  # already counted as running, like the jobs of others
    taken = {limit_name(key): usage[limit_name(key)].running - own[key] for key in keys.values()}
    over: dict[str, str] = {}
    for job in sorted(checked, key=lambda job: job.blocked_on != limit_name(keys[job.id])):
        name, rule = limit_name(keys[job.id]), rules.tasks[job.task_name]
        was_unblocked = job.blocked_on == name
        # A new job takes no slot that is promised to an unblocked job, and waits behind jobs that are blocked.
        promised = 0 if was_unblocked else usage[name].through
        is_next = was_unblocked or not usage[name].has_blocked
        if is_next and rule.max_running is not None and taken[name] + promised < rule.max_running:
            taken[name] += 1
        else:
            over[job.id] = name
    return over


class Tokens(NamedTuple):
    """Jobs that need a token, by id and by what happened to them."""

    starts_in_us: dict[str, int]
    """Jobs that got a token, and when it becomes valid."""
    missing: dict[str, str]
    """Jobs that were not blocked before and got no token, and the name of their rate."""
    late: dict[str, str]
    """Unblocked jobs that got no token: another job took theirs, or a late claim has delayed all tokens."""
    dues: dict[str, int]
    """When the late jobs should be claimed again."""


def _take_tokens(checked: Sequence[LeasedJob], rules: LimitRules) -> Statements[Tokens]:
    """Take a token for each job that has a rate; tokens that become valid a little later count as well.

    An unblocked job that finds no token gets the next one that is not promised. It is not blocked again, because it
    would then wait behind all other blocked jobs.
    """
    metered: dict[str, list[LeasedJob]] = {}
    for job in checked:
        if (rate := rules.tasks[job.task_name].rate) is not None:
            metered.setdefault(rate_name(rate), []).append(job)
    rates, buckets = rules.rates, {}
    for name in sorted(metered):
        buckets[name] = yield from lock_bucket(rates[name].name)
    usage = yield from usage_of(dict.fromkeys(metered, ""))
    tokens = Tokens({}, {}, {}, {})
    for name, jobs in metered.items():
        rate, (full_at, now) = rates[name], buckets[name]
        first = [job.id for job in jobs if job.blocked_on is not None]
        newcomers = [job.id for job in jobs if job.blocked_on is None]
        has_blocked = usage[name].has_blocked or usage[name].through > 0
        allowed = first if has_blocked else first + newcomers
        taken = take(full_at, now, len(allowed), rate, early_us=rules.early_us)
        if taken.granted:
            yield Statement("fill_rate", {"name": rate.name, "full_at": taken.full_at})
        times = token_times(full_at, now, rate, tokens=taken.granted)
        tokens.starts_in_us.update((job_id, time - now) for job_id, time in zip(allowed, times, strict=False))
        late = first[taken.granted :]
        tokens.late.update(dict.fromkeys(late, name))
        tokens.missing.update((job_id, name) for job_id in newcomers if job_id not in tokens.starts_in_us)
        promised = usage[name].through
        times = token_times(taken.full_at, now, rate, tokens=len(late), after=promised)
        tokens.dues.update((job_id, time - rules.early_us) for job_id, time in zip(late, times, strict=True))
    return tokens


class Front(msgspec.Struct, frozen=True):
    """How many jobs at the front of a queue were checked, and how many of them were blocked."""

    checked: int
    blocked: int
    names: frozenset[str] = frozenset()
    """What they are blocked on."""


class FrontJob(NamedTuple):
    """A queued job near the front of its queue."""

    id: str
    task_name: str
    limit_key: str | None
    blocked_on: str | None
    attempts: int
    payload: str | None = None


@operation
def block_front(queue_name: str, rules: LimitRules, *, most: int = MOST_IN_FRONT) -> Statements[Front]:
    """Block the jobs at the front of a queue that no claim can start now, so that claims need not read past them.

    These are jobs behind others that are blocked on the same limit or rate, jobs whose limit has no free slot, and jobs
    of tasks that neither this process nor any live worker knows.
    """
    facts = {"queue_name": queue_name, "most": most}
    rows = yield Statement("front_jobs", facts | {"keyed": as_json(rules.keyed)} if rules.keyed else facts)
    front = [FrontJob(str(row[0]), *row[1:]) for row in rows]
    newcomers = [job for job in front if job.blocked_on is None]
    to_block = yield from _of_unknown_tasks(newcomers, rules)
    to_block += yield from _behind_others([job for job in newcomers if rules.rule(job.task_name) is not None], rules)
    blocked = yield from block(to_block, was=JobState.QUEUED, owner="")
    return Front(len(front), blocked, frozenset(job.blocked_on for job in to_block))


def _of_unknown_tasks(jobs: Sequence[FrontJob], rules: LimitRules) -> Statements[list[JobToBlock]]:
    unknown = {job.task_name for job in jobs} - rules.runs
    if not unknown:
        return []
    workers = yield from list_workers()
    alive = [worker for worker in workers if worker.silent_us <= microseconds(ALIVE_WITHIN)]
    unknown -= {task for worker in alive for task in worker.tasks}
    return [
        JobToBlock(job.id, job.attempts, task_name(job.task_name), job.limit_key)
        for job in jobs
        if job.task_name in unknown
    ]


def _behind_others(jobs: Sequence[FrontJob], rules: LimitRules) -> Statements[list[JobToBlock]]:
    named: list[tuple[FrontJob, str | None, str | None]] = []
    names: dict[str, str] = {}
    for job in jobs:
        rule = rules.tasks[job.task_name]
        key = None if rule.max_running is None else rule.key_of(job.limit_key, job.payload)
        rate = None if rule.rate is None else rate_name(rule.rate)
        names |= ({} if key is None else {limit_name(key): key}) | ({} if rate is None else {rate: ""})
        named.append((job, key, rate))
    usage = yield from usage_of(names)
    to_block: list[JobToBlock] = []
    for job, key, rate in named:
        limit = None if key is None else limit_name(key)
        if limit is not None and _is_full(usage[limit], rules.tasks[job.task_name].max_running):
            to_block.append(JobToBlock(job.id, job.attempts, limit, key))
        elif rate is not None and (usage[rate].has_blocked or usage[rate].through):
            to_block.append(JobToBlock(job.id, job.attempts, rate, key or job.limit_key))
    return to_block


def _is_full(usage: Usage, limit: int | None) -> bool:
    return limit is not None and (usage.has_blocked or usage.running + usage.through >= limit)
