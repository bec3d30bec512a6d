"""Operations on queues: pausing, limits, claiming under limits, and how they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from stagepost.errors import ConfigurationError
from stagepost.model.job import LeasedJob, microseconds
from stagepost.model.lifecycle import LIVE, JobState
from stagepost.model.rate import RateLimit, take
from stagepost.store.jobs import as_json, audit
from stagepost.store.leases import claim
from stagepost.store.statement import Rows, Statement, Steps, operation

__all__ = [
    "ALL_QUEUES",
    "Queue",
    "QueueSettings",
    "claim_limited",
    "list_queues",
    "pause",
    "queue_settings",
    "resume",
    "set_limits",
]

ALL_QUEUES = "*"
"""Names the row whose pause and limits hold for all queues together; no queue can be called that."""


class QueueSettings(msgspec.Struct, frozen=True):
    """What operators set on a queue; None sets no limit."""

    name: str
    paused_at: int | None = None
    max_running: int | None = None
    rate: RateLimit | None = None

    @property
    def is_limited(self) -> bool:
        """Whether claiming from it needs `claim_limited`."""
        return self.max_running is not None or self.rate is not None


class Queue(msgspec.Struct, frozen=True):
    """How a queue stands."""

    name: str
    counts: dict[JobState, int]
    """Of live jobs, by state."""
    lag_us: int | None
    """For how long the oldest queued job could have been run; None if none is queued."""
    settings: QueueSettings


@operation
def pause(name: str, *, actor: str) -> Steps[None]:
    """Let no job of a queue start; what runs goes on. A queue need not have jobs yet."""
    yield Statement("add_queue", {"name": name})
    yield Statement("pause_queue", {"name": name})
    yield from audit(actor, "pause_queue", name).start()


@operation
def resume(name: str, *, actor: str) -> Steps[None]:
    """Let jobs of a queue start again."""
    yield Statement("resume_queue", {"name": name})
    yield from audit(actor, "resume_queue", name).start()


@operation
def set_limits(
    name: str, *, max_running: int | None, rate: float | None, burst: int | None = None, actor: str
) -> Steps[None]:
    """Limit how many jobs of a queue run at once, and how many start per second; None lifts a limit.

    `burst` is how many may start at once after a pause, one second's worth if left out.
    """
    if max_running is not None and max_running < 1:
        raise ConfigurationError(f"queue {name}: max_running is {max_running}. Give 1 or more, or pause the queue.")
    limit = None if rate is None else _limit(rate, burst)
    limits = {
        "max_running": max_running,
        "rate": limit and limit.rate,
        "burst": limit and limit.burst,
    }
    yield Statement("add_queue", {"name": name})
    # An emptier bucket than the new limit can have would make jobs wait for tokens of the old one.
    yield Statement("limit_queue", {"name": name, "fill_us": limit.fill_us if limit else 0, **limits})
    yield from audit(actor, "limit_queue", name, detail=as_json(limits)).start()
