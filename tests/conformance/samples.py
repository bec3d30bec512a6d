"""Jobs in which every column has a different value, so that mixed-up columns are noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from stagepost.database.statement import Operation, Statements, as_json, operation
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob, NewJob
from stagepost.model.outcome import SUSPECT_CRASHES, Outcome
from stagepost.model.series import JobSeries
from stagepost.store import jobs, leases, settling
from stagepost.store.settlement import Fence, Settlement
from tests.conformance.bench import Bench

T = TypeVar("T")

LEASE = timedelta(seconds=30)
QUEUE = "mail"
TASK = "send_letter"


def new_job(**changes: Any) -> NewJob:
    """A request to run now, in which every column that a test does not set has a different value."""
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


def new_series(number: int) -> JobSeries:
    """A request for many jobs of one task, in a separate queue."""
    pattern = new_job(queue_name="letters", priority=3, max_attempts=6)
    letters = [("Ada", copies) for copies in range(number)]
    return JobSeries(pattern, letters, lambda args, _: as_json(dict(zip(("to", "copies"), args, strict=True))))


def enqueue(store: Bench, **changes: Any) -> str:
    """Store a sample job and return its id."""
    return store.run(jobs.enqueue(new_job(**changes))).id


def claim(store: Bench, *, slots: int = 1, owner: str = "worker-a") -> list[LeasedJob]:
    """Lease jobs of the sample task and start them."""
    leased = store.run(leases.claim(QUEUE, owner=owner, task_names=[TASK], slots=slots, lease=LEASE))
    for job in leased:
        if job.crashes >= SUSPECT_CRASHES:
            store.run(leases.mark_started(job))
    return leased


def running(store: Bench, *, owner: str = "worker-a", **changes: Any) -> LeasedJob:
    """Store a sample job and lease it; no other may be queued."""
    job_id = enqueue(store, **changes)
    [job] = claim(store, owner=owner)
    assert job.id == job_id
    return job


def fence(job: LeasedJob) -> Fence:
    """What later writes of this attempt are guarded by."""
    return job.id, job.attempt


def settle(store: Bench, job: LeasedJob, outcome: Outcome) -> bool:
    """Settle one attempt; says whether its fence held."""
    [held] = store.run(settling.settle([Settlement.of(job, outcome)])).values()
    return held


def finish(store: Bench, outcome: Outcome) -> LeasedJob:
    """Lease the next job and settle it."""
    [job] = claim(store)
    assert settle(store, job, outcome)
    return job


def lose_lease(store: Bench) -> None:
    """Let the leases of all running jobs expire, and rescue the jobs."""
    store.clock.advance(LEASE + timedelta(seconds=1))
    store.run(leases.rescue_expired(grace=timedelta(0)))


@operation
def looking_too_early(work: Operation[T]) -> Statements[T]:
    """Run an operation whose first read happens just before another transaction creates the row it looks for."""
    steps = iter(work)
    next(steps)
    try:
        step = steps.send([])
        while True:
            step = steps.send((yield step))
    except StopIteration as end:
        result: T = end.value
        return result


@contextmanager
def held_by_another(store: Bench, job_id: str) -> Iterator[None]:
    """Let another transaction lock a job's row for the body; the test is skipped where that is impossible."""
    if not store.database.store.dialect.has_row_locks:
        pytest.skip("one writer at a time: nobody else can hold a row")
    [other] = store.database.racers(1)
    with other.transaction() as connection:
        connection.execute(f"update stagepost_job set priority = 8 where id = '{job_id}'", {})
        yield
