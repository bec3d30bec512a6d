"""What a relay and a worker of a carried queue do to the store, without a broker."""

from __future__ import annotations

from collections.abc import Sequence

from stagepost.database.statement import Operation
from stagepost.model.job import LeasedJob
from stagepost.store import sending
from stagepost.store.sending import ClaimedDeliveries, mark_sent, take_delivered
from stagepost.store.settlement import Fence
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, QUEUE, TASK, enqueue


def unsent(store: Bench, queue_name: str = QUEUE) -> list[Fence]:
    """The unsent jobs, as messages would name them."""
    return [(job.id, job.attempt) for job in store.run(sending.unsent(queue_name, most=1000))]


def send(store: Bench, queue_name: str = QUEUE) -> list[Fence]:
    """Publish all unsent jobs as a relay does; returns the messages in order."""
    messages = unsent(store, queue_name)
    assert store.run(mark_sent(messages)) == len(messages)
    return messages


def sent(store: Bench) -> set[str]:
    """Which jobs are marked as sent."""
    return {str(job_id) for (job_id,) in store.rows("select id from stagepost_job where sent_at is not null")}


def taking(
    messages: Sequence[Fence],
    *,
    owner: str = "worker-a",
    queue_name: str = QUEUE,
    task_names: Sequence[str] = (TASK,),
    is_limited: bool = False,
) -> Operation[ClaimedDeliveries]:
    """Take messages as a worker does that knows the sample task."""
    return take_delivered(queue_name, messages, owner=owner, task_names=task_names, lease=LEASE, is_limited=is_limited)


def started(store: Bench, messages: Sequence[Fence]) -> list[LeasedJob]:
    """Take messages that all start a job."""
    taken = store.run(taking(messages))
    assert [(job.id, job.attempt) for job in sorted(taken.jobs, key=lambda job: job.id)] == sorted(messages)
    assert taken == ClaimedDeliveries(taken.jobs)
    return taken.jobs


def sent_job(store: Bench) -> Fence:
    """Store a sample job and send it; no other job may be unsent."""
    job_id = enqueue(store)
    assert send(store) == [(job_id, 1)]
    return job_id, 1
