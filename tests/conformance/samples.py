"""Jobs whose every column has a value of its own, so that mixed-up columns show."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob, NewJob
from stagepost.store import leases
from tests.conformance.bench import Bench

LEASE = timedelta(seconds=30)
QUEUE = "mail"
TASK = "send_letter"


def new_job(**changes: Any) -> NewJob:
    """A request to run now; what a test does not care about differs from every other column."""
    facts: dict[str, Any] = {
        "id": new_id(),
        "task_name": TASK,
        "queue_name": QUEUE,
        "payload": '{"to":"Ada","copies":2}',
        "context": '{"trace":"4bf9"}',
        "priority": 7,
        "max_attempts": 4,
    }
    return NewJob(**(facts | changes))


def claim(store: Bench, *, slots: int = 1, owner: str = "worker-a") -> list[LeasedJob]:
    """Lease jobs of the sample task."""
    return store.run(leases.claim(QUEUE, owner=owner, task_names=[TASK], slots=slots, lease=LEASE))
