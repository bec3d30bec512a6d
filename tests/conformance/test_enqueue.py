from __future__ import annotations

from stagepost.store import jobs
from tests.conformance.bench import Bench
from tests.conformance.samples import new_job


def test_a_job_is_stored_once(store: Bench) -> None:
    job = new_job()

    enqueued = store.run(jobs.enqueue(job))

    assert enqueued.is_new
    assert store.run(jobs.get(job.id)).payload == job.payload
