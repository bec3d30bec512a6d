"""Operations on queues: pause, set limits, claim within limits, list with counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from stagepost.database.statement import Statement, Statements, as_json, operation, query
from stagepost.errors import ConfigurationError
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import LIVE, JobState
from stagepost.model.rate import RateLimit, take
from stagepost.store.counting import count_by_queue
from stagepost.store.jobs import audit
from stagepost.store.leases import claim

__all__ = [
    "ALL_QUEUES",
    "Queue",
    "QueueLimits",
    "claim_limited",
    "list_queues",
    "pause",
    "queue_settings",
    "resume",
    "set_limits",
    "within_limits",
]

ALL_QUEUES = "*"
"""The name of the row whose pause and limits apply to all queues together. No queue can have this name."""


class QueueLimits(msgspec.Struct, frozen=True):
    """An operator's settings for a queue; None means no limit."""

    name: str
    paused_at: int | None = None
    max_running: int | None = None
    rate: RateLimit | None = None

    @property
    def is_limited(self) -> bool:
        """Whether its jobs must be claimed with `claim_limited`."""
        return self.max_running is not None or self.rate is not None


@operation
def pause(name: str, *, actor: str) -> Statements[None]:
    """Stop a queue's jobs from starting. Running jobs continue. The queue need not have jobs yet."""
    yield Statement("add_queue", {"name": name})
    yield Statement("pause_queue", {"name": name})
    yield from audit(actor, "pause_queue", name)


@operation
def resume(name: str, *, actor: str) -> Statements[None]:
    """Let jobs of a queue start again."""
    yield Statement("resume_queue", {"name": name})
    yield from audit(actor, "resume_queue", name)


@operation
def set_limits(
    name: str, *, max_running: int | None, rate: float | None, burst: int | None = None, actor: str
) -> Statements[None]:
    """Limit how many jobs of a queue run at once, and how many start per second. None removes a limit.

    `burst` is how many jobs may start at once after a quiet time. It defaults to one second's worth.
    """
    if max_running is not None and max_running < 1:
        raise ConfigurationError(f"queue {name}: max_running is {max_running}. Give 1 or more, or pause the queue.")
    limit = None if rate is None else RateLimit(name, rate, max(1, math.floor(rate)) if burst is None else burst)
    limits = {"max_running": max_running, "rate": limit and limit.per_second, "burst": limit and limit.burst}
    yield Statement("add_queue", {"name": name})
    yield Statement("limit_queue", {"name": name, **limits})
    yield from audit(actor, "limit_queue", name, detail=as_json(limits))


@query
def queue_settings(names: Iterable[str]) -> Statements[dict[str, QueueLimits]]:
    """Read the settings of these queues, and those of all queues together, for a worker to cache."""
    rows = yield Statement("list_queue_settings")
    found = {row[0]: _settings(*row) for row in rows}
    return {name: found.get(name, QueueLimits(name)) for name in [*names, ALL_QUEUES]}


class Queue(msgspec.Struct, frozen=True):
    """A queue's counts, lag and settings."""

    name: str
    counts: Mapping[JobState, int]
    """Live jobs by state."""
    lag_us: int | None
    """How long the oldest queued job has been ready to run; None if no job is queued."""
    settings: QueueLimits


@query
def list_queues() -> Statements[list[Queue]]:
    """List the queues that have live jobs or settings, by name."""
    rows = yield Statement("list_queue_settings")
    settings = {row[0]: _settings(*row) for row in rows}
    counted = yield from count_by_queue()
    live = {name: {state: counts[state] for state in sorted(LIVE)} for name, counts in counted.items()}
    lags: dict[str, int | None] = {}
    for name in [name for name, counts in live.items() if counts[JobState.QUEUED]]:
        lags[name] = yield from _lag(name)
    return [
        Queue(
            name=name,
            counts=live.get(name) or dict.fromkeys(sorted(LIVE), 0),
            lag_us=lags.get(name),
            settings=settings.get(name, QueueLimits(name)),
        )
        for name in sorted({*settings, *(name for name, counts in live.items() if any(counts.values()))})
    ]


@operation
def claim_limited(
    queue_name: str,
    *,
    owner: str,
    task_names: Sequence[str],
    slots: int,
    lease: timedelta,
    global_name: str = ALL_QUEUES,
) -> Statements[list[LeasedJob]]:
    """Lease jobs as `claim` does, within the limits of the queue and of all queues together."""

    def lease_some(room: int) -> Statements[list[LeasedJob]]:
        return iter(claim(queue_name, owner=owner, task_names=task_names, slots=room, lease=lease))

    return (yield from within_limits(queue_name, slots, lease_some, global_name=global_name))


def within_limits(
    queue_name: str,
    slots: int,
    lease_some: Callable[[int], Statements[list[LeasedJob]]],
    *,
    global_name: str = ALL_QUEUES,
) -> Statements[list[LeasedJob]]:
    """Call `lease_some` with the number of jobs that the limits of the queue, and of all queues together, allow."""
    # Lock before counting, always in the same order: two concurrent counts would both see the same free slots.
    rows = yield Statement("lock_queues", {"name": queue_name, "global_name": global_name})
    limits = [(_settings(*row[:-2]), *row[-2:]) for row in rows]
    if any(settings.paused_at is not None for settings, _, _ in limits):
        return []
    if any(settings.max_running is not None for settings, _, _ in limits):
        running = yield Statement("count_running")
        slots = min(slots, _room([settings for settings, _, _ in limits], dict(running), global_name))
    for settings, full_at, until_full in limits:
        if settings.rate is not None:
            slots = min(slots, take(full_at, full_at - until_full, max(0, slots), settings.rate).granted)
    if slots <= 0:
        return []
    jobs = yield from lease_some(slots)
    for settings, full_at, until_full in limits:
        if settings.rate is not None and jobs:
            taken = take(full_at, full_at - until_full, len(jobs), settings.rate)
            yield Statement("fill_queue", {"name": settings.name, "full_at": taken.full_at})
    return jobs


def _lag(queue_name: str) -> Statements[int | None]:
    """How long the oldest queued job has waited, read from the first job of each priority.

    Of the jobs whose message was sent, only the oldest is read.
    """
    rows = yield Statement("oldest_sent", {"queue_name": queue_name})
    waited: int | None = rows[0][0] if rows else None
    facts: dict[str, Any] = {"queue_name": queue_name}
    while True:
        rows = yield Statement("oldest_queued", facts)
        if not rows:
            return waited
        priority, waited_us, lowest = rows[0]
        waited = max(waited or 0, waited_us)
        if priority == lowest:
            return waited
        facts = {"queue_name": queue_name, "below": priority}


def _room(limits: Sequence[QueueLimits], running: Mapping[str, int], global_name: str) -> int:
    """How many more jobs the tightest limit allows to run."""
    counts = {**running, global_name: sum(running.values())}
    return min(
        settings.max_running - counts.get(settings.name, 0) for settings in limits if settings.max_running is not None
    )


def _settings(name: str, paused_at: int | None, max_running: int | None, rate: float | None, burst: Any) -> QueueLimits:
    return QueueLimits(name, paused_at, max_running, None if rate is None else RateLimit(name, rate, burst))
