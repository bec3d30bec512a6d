"""Continuations: a job continues with another task when its children have ended."""

from __future__ import annotations

from stagepost.client.records import Job
from stagepost.model.batch import item_id
from stagepost.model.children import DeferredOutcome, OnChildFailed
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import cancelling, leases, listing
from tests.conformance.bench import Bench
from tests.conformance.families import (
    FAILED,
    THEN_TASK,
    claim_children,
    claim_then,
    counts,
    end,
    look,
    only,
    submit,
    then,
)
from tests.conformance.samples import TASK, claim, enqueue, lose_lease, running, settle
from tests.limits import unblock


def test_a_continuation_runs_as_the_same_job(store: Bench) -> None:
    parent = running(store, unique_key="one at a time")
    submit(store, parent, 2)
    assert settle(store, parent, then())
    one, other = claim_children(store)
    end(store, one, Completed("1"))
    end(store, other, FAILED)

    queued = look(store, parent)
    assert (queued.state, queued.task_name, queued.queue_name) == (JobState.QUEUED, THEN_TASK, "binding")
    assert (queued.payload, queued.max_attempts, queued.priority) == ('{"cover":"red"}', 9, 3)
    assert (queued.failures, queued.attempt, queued.unique_key) == (0, 1, "one at a time")
    [last] = claim_then(store)
    assert (last.id, last.attempt) == (parent.id, 2)
    found = store.run(listing.list_items(last.id))
    assert {(job.state, job.result) for job in found} == {(JobState.COMPLETED, "1"), (JobState.DEAD_LETTER, None)}
    end(store, last, Completed('"bound"'))
    ended = look(store, parent)
    assert (ended.state, ended.result) == (JobState.COMPLETED, '"bound"')


def test_a_job_that_continued_is_found_by_its_first_task_and_arguments(store: Bench) -> None:
    parent = running(store)
    settle(store, parent, then())
    settle_again = only(claim_then(store))
    end(store, settle_again, then(payload='{"cover":"blue"}'))

    for _ in ("live", "ended"):
        job = Job(look(store, parent))
        assert (job.task, job.arguments) == (THEN_TASK, {"cover": "blue"})
        assert (job.first_task, job.first_arguments) == (TASK, {"to": "Ada", "copies": 2})
        assert job.trace == Job(look(store, enqueue(store, queue_name="other"))).trace
        for name in (TASK, THEN_TASK):
            assert parent.id in [found.id for found in store.run(listing.list_jobs(task_name=name))]
        assert store.run(listing.list_jobs(task_name=TASK[:-1])) == []
        if job.finished_at is None:
            end(store, only(claim_then(store)))


def test_a_child_that_continued_is_recognised_when_its_parent_submits_it_again(store: Bench) -> None:
    parent = running(store)
    [child] = submit(store, parent)
    end(store, only(claim_children(store)), then())
    assert look(store, child).task_name == THEN_TASK
    lose_lease(store)
    [again] = claim(store)

    assert submit(store, again) == [child]


def test_a_continuation_runs_at_once_if_there_is_nothing_to_wait_for(store: Bench) -> None:
    parent = running(store)

    assert settle(store, parent, then())

    [last] = claim_then(store)
    assert last.id == parent.id
    end(store, last, Completed('"bound"'))
    assert look(store, parent).result == '"bound"'


def test_a_continuation_begins_with_no_failures_and_no_crashes(store: Bench) -> None:
    running(store)
    lose_lease(store)
    [parent] = claim(store)
    settle(store, parent, FAILED)
    store.run(leases.promote_due())
    [parent] = claim(store)
    assert (parent.failures, parent.crashes) == (1, 1)

    assert settle(store, parent, then())

    [last] = claim_then(store)
    assert (last.failures, last.crashes, last.attempt) == (0, 0, 4)


def test_a_job_that_was_asked_to_stop_does_not_continue(store: Bench) -> None:
    parent = running(store)
    store.run(cancelling.cancel_job(parent.id, actor="ann"))

    assert settle(store, parent, then())

    assert (look(store, parent).state, look(store, parent).error) == (JobState.CANCELLED, "cancelled while it ran")
    assert claim_then(store) == []


def test_a_continuation_may_be_limited(store: Bench) -> None:
    parent = running(store)

    assert settle(store, parent, then(limit_key="binder", limit=1))

    assert look(store, parent).state is JobState.BLOCKED
    assert store.run(unblock()) == 1
    assert len(claim_then(store)) == 1


def test_a_continuation_has_children_and_a_continuation_of_its_own(store: Bench) -> None:
    parent = running(store)
    [first] = submit(store, parent)
    settle(store, parent, then())
    end(store, only(claim_children(store)))
    [middle] = claim_then(store)

    [second] = submit(store, middle)

    assert second == item_id(parent.id, "1.0") != first
    end(store, middle, then())
    assert look(store, parent).state is JobState.WAITING
    end(store, only(claim_children(store)))
    [last] = claim_then(store)
    assert (last.id, last.attempt) == (parent.id, 3)
    end(store, last)
    assert look(store, parent).state is JobState.COMPLETED
    assert counts(store, parent).completed == 2


def test_a_continuation_does_not_run_where_failed_children_fail_their_parent(store: Bench) -> None:
    parent = running(store)
    submit(store, parent)
    ending = then().ending
    assert ending is not None
    settle(store, parent, Completed("1", DeferredOutcome(then=ending.then, on_child_failed=OnChildFailed.FAIL)))

    end(store, only(claim_children(store)), FAILED)

    ended = look(store, parent)
    assert (ended.state, ended.error, ended.task_name) == (JobState.FAILED, "of 1 children 1 failed", parent.task_name)
    assert claim_then(store) == []
