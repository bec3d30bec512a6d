"""Families that are cancelled, or whose parent does not complete: the tree ends from below."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stagepost.errors import Cancelled
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Abandoned, Completed, Failed, Outcome, Refused
from stagepost.store import batches, cancelling, jobs, settling
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.families import (
    child,
    claim_children,
    conclude,
    counts,
    end,
    look,
    submission,
    submit,
)
from tests.conformance.samples import claim, lose_lease, running, settle


@pytest.mark.parametrize(
    ("outcome", "state", "error"),
    [
        (Refused("no such letter"), JobState.FAILED, "no such letter"),
        (Abandoned("changed its mind"), JobState.CANCELLED, "changed its mind"),
    ],
    ids=str,
)
def test_a_parent_that_does_not_complete_takes_its_children_with_it(
    store: Bench, outcome: Outcome, state: JobState, error: str
) -> None:
    parent = running(store)
    submit(store, parent, 3)
    [copy] = claim_children(store, slots=1)

    assert settle(store, parent, outcome)

    assert look(store, parent).state is JobState.WAITING
    assert store.run(batches.cancelled_batches()) == [parent.id]
    assert store.run(cancelling.cancel_items(parent.id)) is None
    assert look(store, copy).cancel_requested_at is not None
    end(store, copy, Abandoned("as it was asked"))
    ended = look(store, parent)
    assert (ended.state, ended.error) == (state, error)
    assert counts(store, parent).cancelled == 3


def test_a_parent_that_kills_its_workers_becomes_a_dead_letter_after_its_children(store: Bench) -> None:
    parent = running(store)
    submit(store, parent)
    for _ in range(2):
        lose_lease(store)
        [parent] = claim(store)
    [copy] = claim_children(store)

    lose_lease(store)

    assert look(store, parent).state is JobState.WAITING
    lose_lease(store)  # rescue leaves waiting jobs alone
    assert look(store, parent).state is JobState.WAITING
    store.run(cancelling.cancel_items(parent.id))
    conclude(store, parent.id)
    ended = look(store, parent)
    assert (ended.state, ended.crashes) == (JobState.DEAD_LETTER, 3)
    assert "died or lost its lease" in (ended.error or "")
    assert [record.kind for record in store.run(jobs.failures_of(parent.id))] == ["crashed"] * 3
    assert look(store, copy).state is JobState.CANCELLED


def test_cancelling_a_waiting_parent_cancels_the_tree(store: Bench) -> None:
    parent = running(store)
    submit(store, parent, 3)
    settle(store, parent, Completed("1"))
    [copy] = claim_children(store, slots=1)

    assert store.run(cancelling.cancel_job(parent.id, actor="ann")) is JobState.WAITING

    assert (counts(store, parent).cancelled, counts(store, parent).running) == (2, 1)
    assert look(store, copy).cancel_requested_at is not None
    end(store, copy)  # it had no time to look
    ended = look(store, parent)
    assert (ended.state, ended.result) == (JobState.CANCELLED, None)
    assert ended.error == "cancelled with its children"


def test_cancelling_a_parent_whose_children_have_not_started_ends_it_at_once(store: Bench) -> None:
    parent = running(store)
    submit(store, parent, 3)
    settle(store, parent, Completed())

    assert store.run(cancelling.cancel_job(parent.id, actor="ann")) is JobState.CANCELLED

    assert look(store, parent).state is JobState.CANCELLED
    assert counts(store, parent).cancelled == 3


def test_a_running_parent_that_is_cancelled_submits_no_more_and_ends_cancelled(store: Bench) -> None:
    parent = running(store)
    submit(store, parent, 2)

    assert store.run(cancelling.cancel_job(parent.id, actor="ann")) is JobState.RUNNING

    with pytest.raises(Cancelled):
        store.run(submission(parent, child(2)))
    assert store.run(batches.cancelled_batches()) == [parent.id]
    store.run(cancelling.cancel_items(parent.id))
    assert counts(store, parent).cancelled == 2
    assert settle(store, parent, Completed("too late"))
    assert look(store, parent).state is JobState.CANCELLED


def test_a_parent_that_is_to_be_retried_can_be_cancelled(store: Bench) -> None:
    parent = running(store)
    submit(store, parent, 2)
    settle(store, parent, Failed("no ink", timedelta(hours=1)))
    assert look(store, parent).state is JobState.RETRYING

    assert store.run(cancelling.cancel_job(parent.id, actor="ann")) is JobState.CANCELLED

    assert look(store, parent).error == "cancelled by ann"
    assert counts(store, parent).cancelled == 2


def test_a_tree_is_cancelled_level_by_level(store: Bench) -> None:
    parent = running(store)
    submit(store, parent, 2)
    settle(store, parent, Completed())
    waiting, still_running = claim_children(store)
    for middle in (waiting, still_running):
        submit(store, middle, 2)
    store.run(settling.settle([Settlement.of(waiting, Completed())]))

    assert store.run(cancelling.cancel_job(parent.id, actor="ann")) is JobState.WAITING

    assert sorted(store.run(batches.cancelled_batches())) == sorted([parent.id, waiting.id, still_running.id])
    for batch_id in (waiting.id, still_running.id):
        store.run(cancelling.cancel_items(batch_id))
    conclude(store, waiting.id)
    assert look(store, waiting).state is JobState.CANCELLED
    end(store, still_running)
    assert {look(store, job).state for job in (parent, waiting, still_running)} == {JobState.CANCELLED}
    assert counts(store, still_running).cancelled == 2
