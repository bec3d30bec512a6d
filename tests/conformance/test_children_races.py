"""Families whose members act at the same instant: one end for every parent, never early, never stuck."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from stagepost.database import Store
from stagepost.errors import Cancelled, IllegalTransition, LeaseLost
from stagepost.model.batch import BatchState
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import FINAL, JobState
from stagepost.model.outcome import Completed, Failed, Outcome, Released
from stagepost.store import batches, concluding, counting, leases, settling
from stagepost.store.cancelling import cancel_items, cancel_job
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench, at_once, is_kept_waiting
from tests.conformance.families import (
    FAILED,
    THEN_TASK,
    child,
    claim_children,
    claim_then,
    conclude,
    counts,
    look,
    submission,
    submit,
    then,
)
from tests.conformance.samples import LEASE, claim, enqueue, lose_lease, running, settle
from tests.services.processes import wait_until

CONNECTIONS = 16
ROUNDS = 8

Call = Callable[[Store], Any]


def race(store: Bench, *calls: Call) -> list[Any]:
    """Make calls at one instant, each with a connection of its own."""
    stores = store.database.racers(len(calls))
    return at_once([partial(call, own) for call, own in zip(calls, stores, strict=True)])


def ending(*leased: LeasedJob, outcome: Outcome | None = None) -> Call:
    """End attempts one by one as a worker does: settle, commit, then conclude."""

    def call(store: Store) -> None:
        for job in leased:
            [held] = store.run(settling.settle([Settlement.of(job, outcome or Completed())])).values()
            assert held
            batch_id = job.batch_id
            while batch_id is not None:
                batch_id = concluding.follow_up(store.run(concluding.conclude(batch_id)))

    return call


def test_children_that_all_end_at_once_end_their_parent_once(blocking_store: Bench) -> None:
    store = blocking_store
    parent = running(store)
    submit(store, parent, 4 * CONNECTIONS)
    settle(store, parent, then())
    copies = claim_children(store)

    race(store, *(ending(*copies[one::CONNECTIONS]) for one in range(CONNECTIONS)))

    assert look(store, parent).state is JobState.QUEUED
    assert (counts(store, parent).completed, counts(store, parent).total) == (4 * CONNECTIONS, 4 * CONNECTIONS)
    assert [job.attempt for job in claim_then(store)] == [2]  # the continuation was queued once


def test_nested_families_that_end_at_once_end_from_below(blocking_store: Bench) -> None:
    store = blocking_store
    top = running(store)
    submit(store, top, CONNECTIONS)
    settle(store, top, Completed())
    middles = claim_children(store)
    for middle in middles:
        submit(store, middle, 2)
        store.run(settling.settle([Settlement.of(middle, Completed())]))
    leaves = claim_children(store)
    assert len(leaves) == 2 * CONNECTIONS

    race(
        store,
        *(ending(*leaves[one::CONNECTIONS], outcome=FAILED if one == 0 else None) for one in range(CONNECTIONS)),
    )

    ended = look(store, top)
    assert ended.state is JobState.COMPLETED_WITH_ERRORS
    assert counts(store, top).live == 0
    assert counts(store, top).completed_with_errors in {1, 2}


def test_a_child_that_ends_while_its_parent_returns_is_not_missed(blocking_store: Bench) -> None:
    store = blocking_store
    for _ in range(ROUNDS):
        parent = running(store)
        submit(store, parent, 2)
        one, other = claim_children(store)

        race(store, ending(parent), ending(one), ending(other))

        assert look(store, parent).state is JobState.COMPLETED
        assert store.run(batches.get(parent.id)).state is BatchState.DONE


def test_ending_the_last_child_waits_for_a_parent_that_is_returning(blocking_store: Bench) -> None:
    """The parent has counted its children and is about to commit: a child that ends now must not be overlooked."""
    store = blocking_store
    if not store.dialect.has_row_locks:
        pytest.skip("with one writer at a time nothing happens in between")
    parent = running(store)
    submit(store, parent)
    copies = claim_children(store)
    [other] = store.database.racers(1)

    with ThreadPoolExecutor(1) as threads:
        with store.transaction() as connection:
            store.database.store.drive(settling.settle([Settlement.of(parent, Completed())]), connection)
            ended = threads.submit(ending(*copies), other)
            wait_until(
                lambda: ended.done() or (look(store, copies[0]).state in FINAL and is_kept_waiting(store)),
                "somebody who has ended the child and waits for its parent",
                seconds=60,
            )
            assert not ended.done()
            assert look(store, copies[0]).state is JobState.COMPLETED
        ended.result(timeout=60)

    assert look(store, parent).state is JobState.COMPLETED


def test_a_parent_cancelled_while_its_last_child_ends_ends_one_way(blocking_store: Bench) -> None:
    store = blocking_store
    for _ in range(ROUNDS):
        parent = running(store)
        submit(store, parent)
        settle(store, parent, Completed())
        copies = claim_children(store)

        race(store, ending(*copies), cancelling(parent))

        assert look(store, parent).state in {JobState.COMPLETED, JobState.CANCELLED}
        assert look(store, copies[0]).state is JobState.COMPLETED
        assert store.run(batches.get(parent.id)).state is BatchState.DONE


def cancelling(job: LeasedJob) -> Call:
    """Cancel a job, unless it has ended."""

    def call(store: Store) -> JobState | None:
        try:
            return store.run(cancel_job(job.id, actor="ann"))
        except IllegalTransition:
            return None

    return call


def test_a_tree_cancelled_by_everybody_at_once_ends(blocking_store: Bench) -> None:
    store = blocking_store
    top = running(store)
    submit(store, top, 3)
    settle(store, top, Completed())
    middles = claim_children(store)
    for middle in middles:
        submit(store, middle, 3)
        store.run(settling.settle([Settlement.of(middle, Completed())]))
    leaves = claim_children(store, slots=3)

    family = [top, *middles, top, *middles]
    ends = [ending(leaf) for leaf in leaves]
    said = race(store, *ends, *(cancelling(job) for job in family))
    tops = [state for job, state in zip(family, said[len(ends) :], strict=True) if job is top]
    for batch_id in store.run(batches.cancelled_batches()):  # what upkeep does with what is left
        store.run(cancel_items(batch_id))
    for batch_id in store.run(batches.idle_batches()):
        conclude(store, batch_id)

    # Once all its children were cancelled, each for itself, it has ended and is not cancelled any more.
    was_in_time = any(state is not None for state in tops)
    assert look(store, top).state is (JobState.CANCELLED if was_in_time else JobState.COMPLETED_WITH_ERRORS)
    assert {counts(store, job).live for job in (top, *middles)} == {0}
    assert store.run(batches.cancelled_batches()) == store.run(batches.idle_batches()) == []


def test_a_zombie_and_its_successor_submit_each_child_once(blocking_store: Bench) -> None:
    store = blocking_store
    for _ in range(ROUNDS):
        enqueue(store)
        [zombie] = claim(store)
        store.clock.advance(LEASE + timedelta(seconds=1))

        def take_over(own: Store) -> None:
            own.run(leases.rescue_expired(grace=timedelta(0)))

        race(store, submitting(zombie), take_over)
        before = store.run(counting.count_items(zombie.id)).total

        assert before in {0, 1}
        lose_lease(store)  # where the rescuer passed over a locked row
        [parent] = claim(store)
        assert submitting(zombie)(store.database.store) is None
        made = store.run(submission(parent, child(0), child(1)))
        assert [enqueued.is_new for enqueued in made] == [before == 0, True]
        assert settle(store, parent, Completed())
        for copy in claim_children(store):
            ending(copy)(store.database.store)
        assert look(store, parent).state is JobState.COMPLETED


def submitting(parent: LeasedJob) -> Call:
    """Submit a child, unless the attempt may not."""

    def call(store: Store) -> int | None:
        try:
            return len(store.run(submission(parent, child(0))))
        except (LeaseLost, Cancelled):
            return None

    return call


def test_a_parent_that_submits_while_it_is_cancelled_leaves_no_child_behind(blocking_store: Bench) -> None:
    store = blocking_store
    for _ in range(ROUNDS):
        parent = running(store)
        race(store, submitting(parent), cancelling(parent))

        assert settle(store, parent, Completed())
        if counts(store, parent).total:
            store.run(cancel_items(parent.id))
            assert look(store, parent).state is JobState.CANCELLED
        assert counts(store, parent).live == 0


def test_an_attempt_that_submits_while_it_is_settled_leaves_no_child_behind(blocking_store: Bench) -> None:
    """Such as a thread that ignores its timeout: its job ends by another hand while it submits."""
    store = blocking_store
    for _ in range(ROUNDS):
        parent = running(store)

        race(store, submitting(parent), ending(parent, outcome=Failed("late", timedelta(1))))

        assert look(store, parent).state is JobState.RETRYING
        store.run(cancel_job(parent.id, actor="ann"))
        assert look(store, parent).state is JobState.CANCELLED
        assert counts(store, parent).live == 0


def test_everybody_may_conclude_at_once(blocking_store: Bench) -> None:
    store = blocking_store
    parent = running(store)
    submit(store, parent)
    settle(store, parent, then())
    [copy] = claim_children(store)
    store.run(settling.settle([Settlement.of(copy, Completed())]))

    race(store, *[lambda own: own.run(concluding.conclude(parent.id))] * CONNECTIONS)

    [last] = claim_then(store)
    assert (last.task_name, last.attempt) == (THEN_TASK, 2)
    assert store.run(batches.get(parent.id)).position == 1


@pytest.mark.parametrize("outcome", [Completed(), FAILED, Released()], ids=str)
def test_an_attempt_settled_twice_concurrently_counts_once(blocking_store: Bench, outcome: Outcome) -> None:
    store = blocking_store
    parent = running(store)
    submit(store, parent)

    def ending_with(given: Outcome) -> Call:
        return lambda own: own.run(settling.settle([Settlement.of(parent, given)]))[parent.id, parent.attempt]

    held = race(store, ending_with(Completed()), ending_with(outcome))

    assert sorted(held) == [False, True]
    assert counts(store, parent).queued == 1
