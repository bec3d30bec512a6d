"""A wait that ends without success names the cause."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stagepost.model.batch import OnFailed
from stagepost.model.limits import task_name
from stagepost.model.outcome import Completed, Failed, Refused
from stagepost.store import concluding, queues
from stagepost.store.wait_reasons import why_batch_waits, why_job_waits, why_run_waits
from tests.conformance import families
from tests.conformance.batches import REFUSED, end, filled
from tests.conformance.bench import Bench
from tests.conformance.pipelines import begin, step
from tests.conformance.samples import QUEUE, TASK, enqueue, running, settle
from tests.conformance.test_workers import hello


def test_a_queued_job_names_the_worker_that_is_missing(store: Bench) -> None:
    job_id = enqueue(store)
    assert store.run(why_job_waits(job_id)) == "No worker is running. Start one with `stagepost worker`."

    hello(store, "w-1")
    store.clock.advance(40)
    assert "The last one was heard from 40 s ago." in store.run(why_job_waits(job_id))

    hello(store, "w-2", queues=["images"])
    assert store.run(why_job_waits(job_id)) == f"No running worker serves queue {QUEUE!r}; they serve images."

    hello(store, "w-3", tasks=["resize"])
    assert f"No running worker of queue {QUEUE!r} knows task {TASK!r}." in store.run(why_job_waits(job_id))

    hello(store, "w-4")
    assert f"Queue {QUEUE!r} has 1 queued and 0 running jobs." in store.run(why_job_waits(job_id))


@pytest.mark.parametrize(("name", "said"), [(QUEUE, f"Queue {QUEUE!r} is paused"), ("*", "All queues are paused")])
def test_a_job_of_a_paused_queue_says_so(store: Bench, name: str, said: str) -> None:
    job_id = enqueue(store)
    store.run(queues.pause(name, actor="ada"))

    assert said in store.run(why_job_waits(job_id))


def test_a_scheduled_a_retried_and_a_running_job_name_their_times(store: Bench) -> None:
    hello(store, "worker-a")
    retried = running(store)
    settle(store, retried, Failed("no paper", timedelta(seconds=50)))
    started = running(store)
    scheduled = enqueue(store, delay_us=3_600_000_000)

    assert store.run(why_job_waits(scheduled)).startswith("It is scheduled for ")
    assert "Attempt 1 failed (no paper); the next starts at " in store.run(why_job_waits(retried.id))
    assert "(attempt 1). Wait again." in store.run(why_job_waits(started.id))
    store.clock.advance(20)
    assert "Its worker has not reported lately" in store.run(why_job_waits(started.id))
    settle(store, started, Completed(None))
    assert store.run(why_job_waits(started.id)) == "It has ended in the meantime."


def test_a_blocked_job_names_its_limit_or_its_unknown_task(store: Bench) -> None:
    hello(store, "w-1", tasks=["resize"])
    limited = enqueue(store, limit_key="printer", limit=1)
    assert "It is blocked on limit 'printer'" in store.run(why_job_waits(limited))

    store.edit("update stagepost_job set blocked_on = :name where id = :id", name="rate:printer", id=limited)
    assert "It is blocked on rate limit 'printer'" in store.run(why_job_waits(limited))

    store.edit("update stagepost_job set blocked_on = :name where id = :id", name=task_name(TASK), id=limited)
    assert "knows task 'send_letter'" in store.run(why_job_waits(limited))


def test_a_job_with_children_names_what_one_of_them_waits_for(store: Bench) -> None:
    parent = running(store)
    [child] = families.submit(store, parent)
    settle(store, parent, Completed(None))

    why = store.run(why_job_waits(parent.id))

    assert why.startswith("It waits for its children. 0 of 1 jobs have ended; 1 queued.")
    assert f"For example job {child}: No worker is running." in why


def test_a_batch_says_whether_it_is_sealed_and_what_holds_it(store: Bench) -> None:
    batch = filled(store, 2, on_failed=OnFailed.HOLD)
    assert store.run(why_batch_waits(batch.key)).startswith(
        "It is not sealed, so items may still be added: call `seal()`"
    )

    store.run(concluding.seal(batch.id))
    assert "0 of 2 jobs have ended; 2 queued. For example job " in store.run(why_batch_waits(batch.key))

    end(store, 2, Refused(REFUSED))
    assert store.run(why_batch_waits(batch.key)) == "It waits until its 2 failed items are retried or waived."


def test_a_run_names_the_step_that_it_waits_for(store: Bench) -> None:
    run_id = begin(store, step("load"))

    assert store.run(why_run_waits(run_id)).startswith("Step 'load' runs. 0 of 1 jobs have ended; 1 queued.")
