"""Discarding, pruning and purging keep what a batch, a family or a run still needs, and change no counts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stagepost.model.batch import BatchRow, BatchState, Counts
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Refused
from stagepost.model.pipeline import Output, RunState
from stagepost.store import batch_items, batches, concluding, counting, gates, history, jobs, listing, runs
from stagepost.store.activity import purge_queue
from stagepost.store.listing import list_jobs
from stagepost.store.run_views import run_view
from tests.conformance import families
from tests.conformance import pipelines as steps
from tests.conformance.batches import REFUSED, TOLD, end, filled, item_ids, told
from tests.conformance.bench import Bench
from tests.conformance.samples import QUEUE, claim, enqueue, finish, running, settle

GATE = "dataset:7"
NOW = timedelta(0)
FIRST_ID, LAST_ID = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"


def held(store: Bench) -> BatchRow:
    """A sealed batch under a gate that one of its two items holds: it failed."""
    batch = filled(store, 2, gate=GATE, on_failed="hold", on_complete=TOLD)
    store.run(concluding.seal(batch.id))
    end(store, 1)
    end(store, 1, Refused(REFUSED))
    return store.run(concluding.conclude(batch.id))


def failed_in(store: Bench, batch: BatchRow) -> str:
    [job] = store.run(listing.list_items(batch.id, states=[JobState.FAILED]))
    return job.id


def remove_everything(store: Bench) -> None:
    """Run every operation that deletes ended jobs, and then the upkeep of counts and batches."""
    store.clock.advance(1)
    ended = store.run(list_jobs(most=100))
    store.run(history.discard([job.id for job in ended], actor="ada"))
    store.run(history.prune(NOW))
    store.run(purge_queue(QUEUE, first_id=FIRST_ID, last_id=LAST_ID))
    store.run(batches.prune_batches(NOW))
    store.run(counting.fold())
    store.run(counting.drop_empty())


def recount(store: Bench, batch: BatchRow) -> None:
    """As upkeep and `stagepost batches recount` do; nothing is found wrong."""
    assert store.run(counting.repair_batch(batch.id)) == []
    for part in counting.PARTS:
        assert store.run(counting.repair(part)) == []
    for gate in store.run(gates.count_gates()):
        assert gate.is_right
    store.run(concluding.conclude(batch.id))


def test_a_failed_item_that_holds_its_batch_is_not_removed_and_its_gate_stays_closed(store: Bench) -> None:
    batch = held(store)

    remove_everything(store)
    recount(store, batch)

    assert store.run(batches.get(batch.id)) == batch
    assert batch.state is BatchState.SEALED
    assert store.run(counting.count_items(batch.id)) == Counts(completed=1, failed=1)
    assert store.run(gates.status(GATE)).unfinished == 1
    assert told(store) == 0


def test_a_batch_that_was_to_be_discarded_is_done_and_opens_its_gate_once_when_its_item_is_waived(store: Bench) -> None:
    batch = held(store)
    remove_everything(store)

    store.run(batch_items.waive(batch.id, actor="ada", why="a test tone", keys=None))
    recount(store, batch)

    done = store.run(batches.get(batch.id))
    assert (done.state, done.outcome) == (BatchState.DONE, JobState.COMPLETED)
    assert store.run(counting.count_items(batch.id)) == Counts(completed=1, waived=1)
    assert told(store) == 1
    [gate] = store.run(gates.list_gates())
    assert (gate.unfinished, gate.openings) == (0, 1)


def test_discarding_skips_items_of_an_unfinished_batch_and_says_why(store: Bench) -> None:
    batch = held(store)
    enqueue(store)
    other = finish(store, Refused("no")).id
    failed = failed_in(store, batch)

    discarded = store.run(history.discard([other, failed], actor="ada"))

    assert discarded.ids == [other]
    assert list(discarded.kept) == [failed]
    assert discarded.kept[failed].startswith("Batch 'upload:42' is not done.")
    assert "stagepost batches waive" in discarded.kept[failed]
    assert store.rows("select subject from stagepost_audit where action = 'discard'") == [(other,)]


@pytest.mark.parametrize("is_folded", [False, True], ids=["moves", "counts"])
def test_a_done_batch_keeps_its_numbers_and_outcome_when_its_items_are_removed(store: Bench, is_folded: bool) -> None:
    batch = filled(store, 3, gate=GATE)
    store.run(concluding.seal(batch.id))
    end(store, 2)
    end(store, 1, Refused(REFUSED))
    done = store.run(concluding.conclude(batch.id))
    if is_folded:
        store.run(counting.fold())

    discarded = store.run(history.discard([failed_in(store, batch)], actor="ada"))
    recount(store, batch)

    assert discarded.kept == {}
    assert len(store.run(listing.list_items(batch.id))) == 2
    assert store.run(batches.get(batch.id)) == done
    assert store.run(counting.count_items(batch.id)) == Counts(completed=2, failed=1)

    store.clock.advance(1)
    store.run(history.prune(NOW))
    recount(store, batch)

    assert store.run(listing.list_items(batch.id)) == []
    assert store.run(batches.get(batch.id)) == done
    assert store.run(counting.count_items(batch.id)) == Counts(completed=2, failed=1)
    [gate] = store.run(gates.list_gates())
    assert (gate.unfinished, gate.openings) == (0, 1)


def test_an_item_of_a_done_batch_that_runs_again_is_counted_beside_those_that_were_removed(store: Bench) -> None:
    batch = filled(store, 2)
    store.run(concluding.seal(batch.id))
    end(store, 2, Refused(REFUSED))
    store.run(concluding.conclude(batch.id))
    first, second = item_ids(batch, "f0", "f1")

    store.run(history.discard([first], actor="ada"))
    store.run(jobs.restart([second], actor="ada"))
    end(store, 1)
    recount(store, batch)

    assert store.run(counting.count_items(batch.id)) == Counts(completed=1, failed=1)


def test_a_batch_is_pruned_with_all_that_was_counted_of_its_items(store: Bench) -> None:
    batch = filled(store, 2)
    store.run(concluding.seal(batch.id))
    end(store, 2)
    store.run(concluding.conclude(batch.id))
    store.clock.advance(1)
    store.run(history.prune(NOW, most=1))
    store.run(counting.fold())
    store.run(history.prune(NOW))

    assert store.run(batches.prune_batches(NOW)) == 1

    for table in ("stagepost_count", "stagepost_move"):
        assert store.rows(f"select scope from {table} where scope like :like and jobs <> 0", like=f"%{batch.id}") == []


def test_purging_a_queue_leaves_items_alone(store: Bench) -> None:
    batch = filled(store, 2)
    end(store, 1)

    store.run(purge_queue(QUEUE, first_id=FIRST_ID, last_id=LAST_ID))

    assert store.run(counting.count_items(batch.id)) == Counts(queued=1, completed=1)
    assert len(store.run(listing.list_items(batch.id))) == 2
    assert store.run(counting.repair_batch(batch.id)) == []


def test_children_are_not_discarded_while_their_parent_waits(store: Bench) -> None:
    parent = running(store)
    failed, _ = families.submit(store, parent, 2)
    settle(store, parent, Completed())
    first, second = sorted(families.claim_children(store), key=lambda job: job.id != failed)
    families.end(store, first, families.FAILED)

    discarded = store.run(history.discard([failed], actor="ada"))
    families.end(store, second)

    assert discarded.kept == {failed: f"Job {parent.id} has not ended. Its children can be discarded once it has."}
    assert families.counts(store, parent) == Counts(completed=1, dead_letter=1)
    assert families.look(store, parent).state is JobState.COMPLETED_WITH_ERRORS


def test_children_are_not_discarded_while_their_parents_continuation_may_read_them(store: Bench) -> None:
    parent = running(store)
    [child] = families.submit(store, parent)
    settle(store, parent, families.then())
    families.end(store, families.only(families.claim_children(store)), Completed("1"))

    assert store.run(history.discard([child], actor="ada")).ids == []

    families.end(store, families.only(families.claim_then(store)))
    assert store.run(history.discard([child], actor="ada")).ids == [child]
    assert families.counts(store, parent) == Counts(completed=1)


def test_a_parent_that_runs_again_counts_the_children_it_submits_then_and_not_those_that_were_removed(
    store: Bench,
) -> None:
    parent = running(store)
    [child] = families.submit(store, parent)
    settle(store, parent, Completed())
    families.end(store, families.only(families.claim_children(store)), families.FAILED)
    store.run(history.discard([child], actor="ada"))
    store.run(counting.fold())
    assert families.counts(store, parent) == Counts(dead_letter=1)

    store.run(jobs.restart([parent.id], actor="ada"))
    [again] = claim(store)
    families.submit(store, again)
    settle(store, again, Completed())
    families.end(store, families.only(families.claim_children(store)))

    assert families.counts(store, parent) == Counts(completed=1)
    assert families.look(store, parent).state is JobState.COMPLETED
    assert store.run(counting.repair_batch(parent.id)) == []


def test_the_batch_of_children_stays_while_their_parent_lives(store: Bench) -> None:
    parent = running(store)
    settle(store, parent, families.then())
    store.clock.advance(1)

    assert store.run(batches.prune_batches(NOW)) == 0

    families.end(store, families.only(families.claim_then(store)))
    store.clock.advance(1)
    assert store.run(batches.prune_batches(NOW)) == 1


def test_jobs_of_a_step_stay_while_its_run_goes_on(store: Bench) -> None:
    run_id = steps.begin(store, steps.step("a"), steps.step("b"), steps.step("c", {"a": Output("a")}, after=("b",)))
    by_name = {job.task_name: job for job in steps.claim_all(store)}
    first, second = by_name["task.a"], by_name["task.b"]
    steps.end(store, first, Completed("1"))
    store.clock.advance(1)

    discarded = store.run(history.discard([first.id], actor="ada"))
    store.run(history.prune(NOW))
    store.run(runs.prune_runs(NOW))

    assert list(discarded.kept) == [first.id]
    assert discarded.kept[first.id].startswith(f"Run {run_id} has not ended.")
    steps.end(store, second, Completed("1"))
    assert steps.work(store, run_id) is RunState.COMPLETED

    store.clock.advance(1)
    store.run(history.prune(NOW))
    assert store.run(list_jobs()) == []
    assert {view.counts.total for view in store.run(run_view(run_id)).steps} == {1}


def test_a_job_whose_batch_is_gone_can_be_removed(store: Bench) -> None:
    batch = filled(store, 2)
    end(store, 2)
    store.rows("delete from stagepost_batch")
    first, second = item_ids(batch, "f0", "f1")

    assert store.run(history.discard([first], actor="ada")).ids == [first]
    store.clock.advance(1)
    assert store.run(history.prune(NOW)) == 1
    assert store.run(jobs.find(second)) is None


def test_discarding_and_a_waiver_of_the_last_failed_item_end_the_batch_once(blocking_store: Bench) -> None:
    store = blocking_store
    for number in range(8):
        batch = filled(store, 1, f"upload:{number}", on_failed="hold", gate=GATE, on_complete=TOLD)
        store.run(concluding.seal(batch.id))
        end(store, 1, Refused(REFUSED))
        [failed] = item_ids(batch, "f0")

        store.race(
            history.discard([failed], actor="ada"),
            batch_items.waive(batch.id, actor="bob", why="a test tone"),
        )

        done = store.run(batches.get(batch.id))
        assert (done.state, done.outcome) == (BatchState.DONE, JobState.COMPLETED)
        assert store.run(counting.count_items(batch.id)) == Counts(waived=1)
        assert told(store) == number + 1
