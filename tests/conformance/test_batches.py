"""Batches: items are added once, counted exactly, and their completion is announced once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stagepost.errors import BatchClosed, BatchNotFound, ConfigurationError
from stagepost.model.batch import BatchKind, BatchState, Counts, Cursor, OnFailed, item_id
from stagepost.model.identity import new_id
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Refused
from stagepost.store import batches, cancelling, concluding, counting, history, leases, listing
from tests.conformance.batches import REFUSED, TOLD, end, filled, items, new_batch, opened, told
from tests.conformance.bench import Bench
from tests.conformance.samples import claim, looking_too_early, new_job, settle


def test_a_batch_is_made_once_by_its_key(store: Bench) -> None:
    first = opened(store, on_failed=OnFailed.HOLD, on_complete=TOLD)
    second = opened(store)

    assert second == first
    assert (first.state, first.on_failed, first.cursor) == (BatchState.OPEN, OnFailed.HOLD, Cursor())
    assert store.run(batches.get(first.id)) == store.run(batches.find("upload:42")) == first
    assert store.run(batches.find("upload:43")) is None


def test_a_batch_that_another_request_created_meanwhile_is_found(store: Bench) -> None:
    first = opened(store)

    assert store.run(looking_too_early(batches.open_batch(new_batch()))) == first


def test_a_batch_that_does_not_exist_is_not_found(store: Bench) -> None:
    for operation in (batches.get, concluding.seal, concluding.conclude, concluding.try_conclude):
        with pytest.raises(BatchNotFound):
            store.run(operation(new_id()))


def test_items_are_added_with_the_cursor_of_their_chunk(store: Bench) -> None:
    batch = opened(store)

    added = store.run(batches.add_items(batch.id, items(3), cursor=Cursor(3, "f2")))

    assert (added.new, added.cursor) == (3, Cursor(3, "f2"))
    assert store.run(batches.get(batch.id)).cursor == Cursor(3, "f2")
    [job] = [job for job in store.run(listing.list_items(batch.id)) if job.item_key == "f1"]
    assert (job.id, job.batch_id, job.state) == (item_id(batch.id, "f1"), batch.id, JobState.QUEUED)
    assert store.run(counting.count_items(batch.id)) == Counts(queued=3)


def test_the_same_item_twice_is_one(store: Bench) -> None:
    batch = opened(store)
    store.run(batches.add_items(batch.id, [*items(2), *items(2)]))
    end(store, 1)

    again = store.run(batches.add_items(batch.id, items(3)))

    assert again.new == 1
    assert store.run(counting.count_items(batch.id)) == Counts(queued=2, completed=1)


def test_without_a_given_cursor_it_advances_by_the_new_items(store: Bench) -> None:
    batch = filled(store, 2)

    added = store.run(batches.add_items(batch.id, items(3)))

    assert added.cursor == store.run(batches.get(batch.id)).cursor == Cursor(3, "f2")


def test_the_cursor_never_moves_back(store: Bench) -> None:
    batch = opened(store)
    store.run(batches.add_items(batch.id, items(4), cursor=Cursor(4, "f3")))

    late = store.run(batches.add_items(batch.id, items(2), cursor=Cursor(2, "f1")))

    assert late.cursor == store.run(batches.get(batch.id)).cursor == Cursor(4, "f3")


@pytest.mark.parametrize("number", [1, 250])
def test_many_items_are_loaded_and_few_inserted_with_the_same_columns(store: Bench, number: int) -> None:
    batch = opened(store)
    later = [item.__class__(item.key, new_job(delay_us=60_000_000)) for item in items(number, first=number)]
    limited = items(number, first=2 * number, limit_key="printer", limit=2)

    added = store.run(batches.add_items(batch.id, [*items(number), *later, *limited], notify=True))

    assert added.new == 3 * number
    assert store.run(counting.count_items(batch.id)) == Counts(queued=number, scheduled=number, blocked=number)
    assert store.rows("select count(*) from stagepost_job where item_key is null or batch_id is null") == [(0,)]


def test_a_closed_batch_refuses_new_items_but_accepts_existing_ones(store: Bench) -> None:
    sealed, cancelled = filled(store, 2, "sealed"), filled(store, 2, "cancelled")
    store.run(concluding.seal(sealed.id))
    store.run(cancelling.cancel_batch(cancelled.id, actor="ada"))

    for batch, state in ((sealed, "sealed"), (cancelled, "cancelled")):
        assert store.run(batches.add_items(batch.id, items(2))).new == 0
        with pytest.raises(BatchClosed, match=f"is {state} and accepts no more items"):
            store.run(batches.add_items(batch.id, items(3)))


def test_a_batch_stays_under_its_gate(store: Bench) -> None:
    opened(store, gate="dataset:7")

    assert opened(store).gate == "dataset:7"
    with pytest.raises(ConfigurationError, match="is under gate 'dataset:7', not 'dataset:8'"):
        opened(store, gate="dataset:8")


def test_adding_items_creates_their_batch(store: Bench) -> None:
    added = store.run(batches.add_to(new_batch(), items(2)))
    more = store.run(batches.add_to(new_batch(), items(2, first=1)))

    assert (added.new, more.new) == (2, 1)
    batch = store.run(batches.find("upload:42"))
    assert batch is not None
    assert store.run(counting.count_items(batch.id)) == Counts(queued=3)


def test_a_batch_is_done_when_it_is_sealed_and_its_last_item_has_ended(store: Bench) -> None:
    batch = filled(store, 2, on_complete=TOLD)
    end(store, 1)
    assert store.run(concluding.conclude(batch.id)).state is BatchState.OPEN

    assert store.run(concluding.seal(batch.id)).state is BatchState.SEALED
    assert store.run(concluding.conclude(batch.id)).state is BatchState.SEALED
    assert told(store) == 0
    end(store, 1)
    done = store.run(concluding.conclude(batch.id))

    assert (done.state, done.outcome, done.done_at) == (BatchState.DONE, JobState.COMPLETED, store.now)
    assert told(store) == 1


def test_a_batch_is_concluded_once(store: Bench) -> None:
    batch = filled(store, 1, on_complete=TOLD)
    store.run(concluding.seal(batch.id))
    end(store, 1)

    for _ in range(3):
        store.run(concluding.conclude(batch.id))
        tried = store.run(concluding.try_conclude(batch.id))
        assert tried is not None
        assert tried.state is BatchState.DONE

    assert told(store) == 1


def test_items_that_end_before_the_seal_are_not_missed(store: Bench) -> None:
    batch = filled(store, 2, on_complete=TOLD)
    end(store, 2)
    store.run(concluding.conclude(batch.id))

    assert store.run(concluding.seal(batch.id)).state is BatchState.DONE
    assert told(store) == 1


def test_an_empty_batch_is_done_when_it_is_sealed(store: Bench) -> None:
    batch = store.run(concluding.seal_key(new_batch(on_complete=TOLD)))

    assert (batch.state, batch.outcome) == (BatchState.DONE, JobState.COMPLETED)
    assert store.run(concluding.seal_key(new_batch())).done_at == batch.done_at
    assert told(store) == 1


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([Completed(), Completed()], JobState.COMPLETED),
        ([Completed(), Refused(REFUSED)], JobState.COMPLETED_WITH_ERRORS),
        ([Refused(REFUSED), Refused(REFUSED)], JobState.FAILED),
    ],
    ids=["all well", "some failed", "all failed"],
)
def test_the_outcome_sums_up_how_items_ended(store: Bench, outcomes: list[Any], expected: JobState) -> None:
    batch = filled(store, 2)
    store.run(concluding.seal(batch.id))

    for outcome in outcomes:
        end(store, 1, outcome)

    assert store.run(concluding.conclude(batch.id)).outcome is expected


def test_counts_are_the_same_before_and_after_folding(store: Bench) -> None:
    batch = filled(store, 3)
    end(store, 2)
    before = store.run(counting.count_items(batch.id))

    store.run(counting.fold())

    assert store.run(counting.count_items(batch.id)) == before == Counts(queued=1, completed=2)


def test_batches_are_listed_newest_first_by_pages_and_states(store: Bench) -> None:
    made = [opened(store, f"upload:{number}") for number in range(3)]
    store.run(batches.open_batch(new_batch("step", kind=BatchKind.STEP)))
    store.run(concluding.seal(made[1].id))

    first = store.run(batches.list_batches(most=2))
    rest = store.run(batches.list_batches(most=2, before=first[-1].id))

    assert [batch.key for batch in first + rest] == ["upload:2", "upload:1", "upload:0"]
    assert [batch.key for batch in store.run(batches.list_batches(state=BatchState.DONE))] == ["upload:1"]
    unfinished = store.run(batches.unfinished_ids(most=2))
    assert unfinished == sorted(unfinished)
    assert len(unfinished + store.run(batches.unfinished_ids(after=unfinished[-1], most=2))) == 3


def test_sealed_batches_without_live_items_are_found(store: Bench) -> None:
    lost, busy, still_open = (filled(store, 1, key) for key in ("lost", "busy", "open"))
    for batch in (lost, busy):
        store.run(concluding.seal(batch.id))
    for job in claim(store, slots=3):
        if job.batch_id != busy.id:
            settle(store, job, Completed())

    assert store.run(batches.idle_batches()) == [lost.id]
    assert store.run(batches.idle_batches(after=lost.id)) == []
    assert store.run(batches.get(still_open.id)).state is BatchState.OPEN


def test_rescued_jobs_name_their_batches(store: Bench) -> None:
    batch = filled(store, 1)
    claim(store)
    store.clock.advance(60)

    assert store.run(leases.rescue_expired(grace=timedelta(0))).batches == {batch.id}


def test_a_planted_drift_is_found_and_repaired(store: Bench) -> None:
    """F67."""
    batch, other = filled(store, 3), filled(store, 2, "other")
    end(store, 5)
    store.run(counting.fold())
    store.rows(
        "update stagepost_count set jobs = jobs + 4 where scope = :scope and class = 'completed'",
        scope=counting.batch_scope(batch.id),
    )
    assert store.run(counting.count_items(batch.id)).completed == 7

    [drift] = store.run(counting.find_batch_drift(batch.id))
    assert (drift.class_name, drift.counted, drift.found) == ("completed", 7, 3)
    assert store.run(counting.repair_batch(batch.id)) == [drift]

    assert store.run(counting.find_batch_drift(batch.id)) == store.run(counting.find_batch_drift(other.id)) == []
    assert store.run(counting.count_items(batch.id)) == Counts(completed=3)


def test_lost_moves_are_found_and_corrected(store: Bench) -> None:
    """F67."""
    batch = filled(store, 3)
    end(store, 1)
    store.rows("delete from stagepost_move where scope = :scope", scope=counting.batch_scope(batch.id))

    drifts = store.run(counting.repair_batch(batch.id))

    assert [(drift.class_name, drift.counted, drift.found) for drift in drifts] == [
        ("active", 0, 2),
        ("completed", 0, 1),
    ]
    assert store.run(counting.count_items(batch.id)) == Counts(queued=2, completed=1)


def test_old_batches_are_deleted_after_their_items(store: Bench) -> None:
    old, unfinished = filled(store, 2, "old"), filled(store, 1, "unfinished")
    store.run(concluding.seal(old.id))
    end(store, 3)
    store.run(concluding.conclude(old.id))
    store.clock.advance(timedelta(days=31))
    assert store.run(batches.prune_batches(timedelta(days=30))) == 0

    store.run(history.prune(timedelta(days=30)))

    assert store.run(batches.prune_batches(timedelta(days=30))) == 1
    assert store.run(batches.find("old")) is None
    scope = counting.batch_scope(old.id)
    for table in ("stagepost_count", "stagepost_move"):
        assert store.rows(f"select * from {table} where scope = :scope", scope=scope) == []
    assert store.run(counting.count_items(unfinished.id)) == Counts(completed=1)


def test_unfinished_batches_are_counted_by_kind_up_to_a_limit(store: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.run(batches.count_unfinished_batches()) == {}
    filled(store, 1, "open")
    store.run(concluding.seal(filled(store, 1, "sealed").id))
    store.run(concluding.seal_key(new_batch("done")))
    opened(store, "step", kind=BatchKind.STEP)

    assert store.run(batches.count_unfinished_batches()) == {BatchKind.BATCH: 2, BatchKind.STEP: 1}
    monkeypatch.setattr(batches, "MOST_COUNTED", 1)
    assert sum(store.run(batches.count_unfinished_batches()).values()) == 1
