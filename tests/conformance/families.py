"""Parents and children on the test bench."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from stagepost.database.statement import Operation
from stagepost.model.batch import BatchRow, Counts
from stagepost.model.children import DeferredOutcome, NewChild
from stagepost.model.job import Enqueued, JobRow, LeasedJob, NewJob
from stagepost.model.outcome import Completed, Failed, Outcome
from stagepost.store import concluding, counting, jobs, leases, settling
from stagepost.store.children import submit_children
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, new_job

CHILD_QUEUE = "children"
CHILD_TASK = "copy_letter"
THEN_TASK = "bind_letters"
FAILED = Failed("no ink", timedelta(0))


def child(number: int = 0, key: str | None = None, **changes: Any) -> NewChild:
    """A child that is claimed apart from its parent."""
    payload = f'{{"copy":{number}}}'
    facts: dict[str, Any] = {"queue_name": CHILD_QUEUE, "task_name": CHILD_TASK, "payload": payload, "max_attempts": 1}
    return NewChild(new_job(**(facts | changes)), key, number)


def submission(parent: LeasedJob, *children: NewChild) -> Operation[list[Enqueued]]:
    return submit_children(parent, children)


def submit(store: Bench, parent: LeasedJob, number: int = 1) -> list[str]:
    """Submit children, numbered from 0; returns their ids."""
    made = store.run(submission(parent, *(child(position) for position in range(number))))
    return [enqueued.id for enqueued in made]


def claim_children(store: Bench, *, slots: int = 100, owner: str = "worker-b") -> list[LeasedJob]:
    return store.run(leases.claim(CHILD_QUEUE, owner=owner, task_names=[CHILD_TASK], slots=slots, lease=LEASE))


def end(store: Bench, job: LeasedJob, outcome: Outcome | None = None) -> BatchRow | None:
    """Settle an attempt as a worker does, and conclude the batches that this may have finished."""
    [held] = store.run(settling.settle([Settlement.of(job, outcome or Completed())])).values()
    assert held
    return conclude(store, job.batch_id)


def conclude(store: Bench, batch_id: str | None) -> BatchRow | None:
    """Conclude a batch and then those above it."""
    batch: BatchRow | None = None
    while batch_id is not None:
        batch = store.run(concluding.conclude(batch_id))
        batch_id = concluding.follow_up(batch)
    return batch


def only(leased: list[LeasedJob]) -> LeasedJob:
    [job] = leased
    return job


def look(store: Bench, job: LeasedJob | str) -> JobRow:
    return store.run(jobs.get(job if isinstance(job, str) else job.id))


def counts(store: Bench, job: LeasedJob) -> Counts:
    return store.run(counting.count_items(job.id))


def then(**changes: Any) -> Completed:
    """The outcome of a handler that named a continuation."""
    facts = {"queue_name": "binding", "task_name": THEN_TASK, "payload": '{"cover":"red"}', "max_attempts": 9}
    job: NewJob = new_job(**(facts | {"priority": 3} | changes))
    return Completed('"so far"', DeferredOutcome(then=job))


def claim_then(store: Bench) -> list[LeasedJob]:
    return store.run(leases.claim("binding", owner="worker-c", task_names=[THEN_TASK], slots=9, lease=LEASE))
