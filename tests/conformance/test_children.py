"""Parents wait for their children, end after them, and once."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from stagepost.errors import ChildDiffers, LeaseLost
from stagepost.model.batch import BatchKind, BatchState, item_id
from stagepost.model.children import DeferredOutcome, OnChildFailed
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Abandoned, Completed, Crashed, Outcome, Refused, Released, Snoozed
from stagepost.store import batches, history, jobs, leases, settling
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.families import (
    CHILD_TASK,
    FAILED,
    child,
    claim_children,
    claim_then,
    conclude,
    counts,
    end,
    look,
    only,
    submission,
    submit,
    then,
)
from tests.conformance.samples import claim, lose_lease, running, settle


def test_a_parent_waits_for_its_children_and_ends_after_the_last(store: Bench) -> None:
    parent = running(store)
    ids = submit(store, parent, 3)

    assert settle(store, parent, Completed('"sent"'))

    waiting = look(store, parent)
    assert (waiting.state, waiting.locked_by, waiting.lease_until) == (JobState.WAITING, None, None)
    copies = claim_children(store)
    assert {copy.id for copy in copies} == set(ids)
    for copy in copies[:-1]:
        end(store, copy)
        assert look(store, parent).state is JobState.WAITING
    end(store, copies[-1])
    ended = look(store, parent)
    assert (ended.state, ended.result, ended.error) == (JobState.COMPLETED, '"sent"', None)
    assert (counts(store, parent).completed, counts(store, parent).total) == (3, 3)


def test_a_parent_waits_for_its_children_even_if_it_ends_together_with_others(store: Bench) -> None:
    parent, *others = (running(store) for _ in range(3))
    submit(store, parent)

    held = store.run(settling.settle([Settlement.of(job, Completed()) for job in (parent, *others)]))

    assert all(held.values())
    states = [look(store, job).state for job in (parent, *others)]
    assert states == [JobState.WAITING, JobState.COMPLETED, JobState.COMPLETED]


def test_children_know_their_batch_and_their_key(store: Bench) -> None:
    parent = running(store)
    [by_number, by_key] = store.run(submission(parent, child(0), child(1, key="the second")))

    batch = store.run(batches.get(parent.id))
    assert (batch.key, batch.kind, batch.state) == (f"job:{parent.id}", BatchKind.CHILDREN, BatchState.OPEN)
    assert by_number.id == item_id(parent.id, "0")
    assert by_key.id == item_id(parent.id, "the second")
    job = look(store, by_key.id)
    assert (job.batch_id, job.item_key, job.task_name) == (parent.id, "the second", CHILD_TASK)


def test_children_may_end_before_their_parent_returns(store: Bench) -> None:
    parent = running(store)
    submit(store, parent, 2)
    for copy in claim_children(store):
        end(store, copy)
    assert look(store, parent).state is JobState.RUNNING

    assert settle(store, parent, Completed("7"))

    ended = look(store, parent)
    assert (ended.state, ended.result) == (JobState.COMPLETED, "7")
    assert store.run(batches.get(parent.id)).state is BatchState.DONE


def test_the_last_child_ends_a_parent_whose_conclusion_was_lost(store: Bench) -> None:
    parent = running(store)
    submit(store, parent)
    settle(store, parent, Completed())
    [copy] = claim_children(store)
    store.run(settling.settle([Settlement.of(copy, Completed())]))  # and the worker dies before it concludes
    assert look(store, parent).state is JobState.WAITING

    assert store.run(batches.idle_batches()) == [parent.id]
    conclude(store, parent.id)

    assert look(store, parent).state is JobState.COMPLETED
    assert store.run(batches.idle_batches()) == []


@pytest.mark.parametrize(
    ("outcome", "state", "policy", "error"),
    [
        (Completed(), JobState.COMPLETED, OnChildFailed.FINISH, None),
        (Completed(), JobState.COMPLETED, OnChildFailed.FAIL, None),
        (FAILED, JobState.COMPLETED_WITH_ERRORS, OnChildFailed.FINISH, "of 2 children 1 failed"),
        (Abandoned("no"), JobState.COMPLETED_WITH_ERRORS, OnChildFailed.FINISH, "of 2 children 1 cancelled"),
        (Refused("no"), JobState.FAILED, OnChildFailed.FAIL, "of 2 children 1 failed"),
        (Abandoned("no"), JobState.FAILED, OnChildFailed.FAIL, "of 2 children 1 cancelled"),
    ],
    ids=str,
)
def test_the_policy_says_what_a_failed_child_does(
    store: Bench, outcome: Outcome, state: JobState, policy: OnChildFailed, error: str | None
) -> None:
    parent = running(store)
    submit(store, parent, 2)
    settle(store, parent, Completed("1", DeferredOutcome(on_child_failed=policy)))
    one, other = claim_children(store)

    end(store, one)
    end(store, other, outcome)

    ended = look(store, parent)
    assert (ended.state, ended.error) == (state, error)
    assert ended.result == (None if state is JobState.FAILED else "1")


def test_a_retried_attempt_submits_the_same_children(store: Bench) -> None:
    parent = running(store)
    ids = submit(store, parent, 2)
    for copy in claim_children(store):
        end(store, copy, FAILED if copy.id == ids[1] else None)
    assert settle(store, parent, FAILED)  # and the handler fails after all
    store.run(leases.promote_due())
    [again] = claim(store)

    made = store.run(submission(again, child(0), child(1), child(2)))

    assert [(enqueued.id, enqueued.is_new) for enqueued in made[:2]] == [(ids[0], False), (ids[1], False)]
    assert made[2].is_new
    assert settle(store, again, Completed())
    assert counts(store, again).dead_letter == 1  # it is not run again: its attempts are used up
    [third] = claim_children(store)
    end(store, third)
    assert look(store, parent).state is JobState.COMPLETED_WITH_ERRORS


def test_another_child_in_the_same_place_is_refused(store: Bench) -> None:
    parent = running(store)
    submit(store, parent, 2)
    lose_lease(store)
    [again] = claim(store)

    with pytest.raises(ChildDiffers, match="child 1 as a job of 'copy_letter' with other arguments"):
        store.run(submission(again, child(0), child(1, payload='{"copy":7}')))
    [by_key] = store.run(submission(again, child(1, key="1", payload='{"copy":7}')))

    assert not by_key.is_new  # whoever chose a key has said that it is the same


def test_an_attempt_that_lost_its_lease_cannot_submit(store: Bench) -> None:
    zombie = running(store, owner="worker-z")
    submit(store, zombie)
    lose_lease(store)
    [parent] = claim(store, owner="worker-z")  # the same worker: only the attempt differs

    with pytest.raises(LeaseLost):
        store.run(submission(zombie, child(1)))
    with pytest.raises(LeaseLost):
        store.run(submission(msgspec.structs.replace(parent, owner="worker-y"), child(1)))
    settle(store, parent, Completed())
    with pytest.raises(LeaseLost):
        store.run(submission(parent, child(1)))

    assert counts(store, parent).total == 1


def test_an_attempt_that_was_settled_cannot_be_settled_again_while_its_job_waits(store: Bench) -> None:
    parent = running(store)
    submit(store, parent)
    assert settle(store, parent, Completed("1"))

    for outcome in (Completed("2"), FAILED, Snoozed(timedelta(0)), Released(), Refused("no")):
        assert not settle(store, parent, outcome)

    assert look(store, parent).state is JobState.WAITING
    end(store, only(claim_children(store)))
    assert look(store, parent).result == "1"


def test_families_nest(store: Bench) -> None:
    top = running(store)
    submit(store, top)
    settle(store, top, Completed('"top"'))
    line = [top]
    for _ in range(3):
        [job] = claim_children(store)
        submit(store, job)
        end(store, job)
        line.append(job)
    [leaf] = claim_children(store)
    assert {look(store, job).state for job in line} == {JobState.WAITING}

    end(store, leaf, FAILED)

    assert [look(store, job).state for job in line] == [JobState.COMPLETED_WITH_ERRORS] * 4
    assert look(store, top).result == '"top"'
    assert look(store, line[2]).error == "of 1 children 1 completed with errors"


def test_retrying_a_parent_runs_its_incomplete_children_again(store: Bench) -> None:
    parent = running(store)
    ids = submit(store, parent, 3)
    settle(store, parent, Completed())
    for copy in claim_children(store):
        end(store, copy, {ids[0]: None, ids[1]: FAILED, ids[2]: Abandoned("no")}[copy.id])
    assert look(store, parent).state is JobState.COMPLETED_WITH_ERRORS

    assert store.run(jobs.restart([parent.id], actor="ann")) == [parent.id]
    [again] = claim(store)
    assert submit(store, again, 3) == ids

    assert store.run(batches.get(parent.id)).state is BatchState.OPEN
    assert settle(store, again, Completed())
    copies = claim_children(store)
    assert {copy.id for copy in copies} == set(ids[1:])
    for copy in copies:
        assert look(store, parent).state is JobState.WAITING
        end(store, copy)
    assert look(store, parent).state is JobState.COMPLETED


def test_a_retried_parent_that_submits_nothing_ends_without_its_children(store: Bench) -> None:
    parent = running(store)
    submit(store, parent)
    settle(store, parent, Completed())
    end(store, only(claim_children(store)), FAILED)
    store.run(jobs.restart([parent.id], actor="ann"))

    [again] = claim(store)
    end(store, again, Completed("2"))

    assert (look(store, parent).state, look(store, parent).result) == (JobState.COMPLETED, "2")


def test_children_stay_while_their_parent_lives(store: Bench) -> None:
    parent = running(store)
    submit(store, parent)
    settle(store, parent, then())
    end(store, only(claim_children(store)), Completed("1"))
    store.clock.advance(timedelta(days=30))

    assert store.run(history.prune(timedelta(days=7))) == 0

    end(store, only(claim_then(store)))
    store.clock.advance(timedelta(days=30))
    assert store.run(history.prune(timedelta(days=7))) == 2


def test_a_crash_of_a_first_attempt_is_settled_with_its_children(store: Bench) -> None:
    parent = running(store)
    submit(store, parent)

    assert settle(store, parent, Crashed("its process died"))

    again = look(store, parent)
    assert (again.state, again.crashes) == (JobState.QUEUED, 1)
    assert counts(store, parent).queued == 1


def test_a_parent_is_an_item_like_any_other(store: Bench) -> None:
    """The batch above is done once the whole family has ended."""
    top = running(store)
    submit(store, top)
    settle(store, top, Completed())
    [middle] = claim_children(store)
    submit(store, middle)
    end(store, middle, then())

    assert (counts(store, top).waiting, counts(store, top).total) == (1, 1)
    end(store, only(claim_children(store)))
    assert (counts(store, top).queued, counts(store, top).waiting) == (1, 0)
    end(store, only(claim_then(store)))

    assert look(store, top).state is JobState.COMPLETED
    assert (counts(store, top).completed, counts(store, top).total) == (1, 1)
