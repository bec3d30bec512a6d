"""Batches and gates inside callers' own transactions, on every kind of connection."""

from __future__ import annotations

import pytest

from stagepost.model.batch import BatchState, Counts
from stagepost.store import batches, concluding, counting, gates, jobs
from tests.conformance.batches import TOLD, end, filled, item_ids, items, new_batch, opened, told
from tests.conformance.bench import Bench
from tests.conformance.caller_kinds import each_kind, every_kind
from tests.conformance.callers import Kind, calling

GATE = "dataset:7"


@pytest.fixture
def store(callers_store: Bench) -> Bench:
    return callers_store


@every_kind
@pytest.mark.parametrize("number", [3, 120], ids=["inserted", "loaded"])
def test_items_are_added_by_the_callers_commit(kind: Kind, store: Bench, number: int) -> None:
    new = new_batch(gate=GATE, on_complete=TOLD)
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.write("uploaded")
        added = caller.run(batches.add_to(new, items(number)))
        caller.run(concluding.seal_key(new_batch()))
        assert store.run(batches.find(new.key)) is None
        caller.commit()

    stored = store.run(batches.get(new.id))
    assert (added.new, stored.position, stored.state) == (number, number, BatchState.SEALED)
    assert store.run(counting.count_items(new.id)) == Counts(queued=number)
    assert store.run(gates.status(GATE)).unfinished == 1
    end(store, number)
    assert store.run(concluding.conclude(new.id)).state is BatchState.DONE
    assert told(store) == 1


@every_kind
def test_items_vanish_with_the_callers_rollback(kind: Kind, store: Bench) -> None:
    batch = filled(store, 1, gate=GATE)
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.run(batches.add_to(new_batch(), items(3)))
        caller.run(batches.add_to(new_batch("another", gate=GATE), items(3)))
        caller.rollback()

    assert store.run(batches.find("another")) is None
    assert store.run(counting.count_items(batch.id)) == Counts(queued=1)
    assert store.run(gates.status(GATE)).unfinished == 1


@every_kind
def test_existing_items_are_not_added_again(kind: Kind, store: Bench) -> None:
    batch = filled(store, 2)
    end(store, 1)
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        added = caller.run(batches.add_to(new_batch(), items(3)))
        caller.commit()

    assert (added.new, added.cursor.position) == (1, 3)
    assert store.run(counting.count_items(batch.id)) == Counts(queued=2, completed=1)


@each_kind(lambda kind: kind.database != "sqlite")
@pytest.mark.parametrize("number", [3, 120], ids=["inserted", "loaded"])
def test_items_added_and_ended_after_the_callers_snapshot_are_not_run_again(
    kind: Kind, store: Bench, number: int
) -> None:
    """A MySQL transaction sees what was there when it first read, unless it locks."""
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.read()
        batch = opened(store)
        store.run(batches.add_items(batch.id, items(number)))
        end(store, number - 1)

        added = caller.run(batches.add_to(new_batch(), items(number + 1)))
        caller.commit()

    assert (added.new, added.cursor.position) == (1, number + 1)
    assert store.run(counting.count_items(batch.id)) == Counts(queued=2, completed=number - 1)
    assert all(store.run(jobs.find(job_id)) for job_id in item_ids(batch, "f0", f"f{number}"))


@every_kind
def test_a_check_of_a_gate_tells_what_keeps_it_closed(kind: Kind, store: Bench) -> None:
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        before = caller.run(gates.locked_status(GATE))
        caller.commit()
        filled(store, 2, gate=GATE)
        outside = store.run(gates.status(GATE))
        caller.begin()
        inside = caller.run(gates.locked_status(GATE))
        caller.rollback()

    assert (before.unfinished, before.batches) == (0, ())
    assert inside == outside
    assert (inside.unfinished, inside.batches[0].batch.key) == (1, "upload:42")
    assert inside.batches[0].counts == Counts(queued=2)


@each_kind(lambda kind: kind.database != "sqlite")
def test_a_check_of_a_gate_is_of_this_moment(kind: Kind, store: Bench) -> None:
    """An upload that began after the caller did is seen."""
    store.run(gates.declare(GATE, on_open=None))
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.read()
        opened(store, gate=GATE)

        status = caller.run(gates.locked_status(GATE))
        caller.rollback()

    assert status.unfinished == 1
