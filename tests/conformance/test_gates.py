"""Gates: closed from the start of the first batch under them until the last is done."""

from __future__ import annotations

import msgspec

from stagepost.model.batch import Counts
from stagepost.store import batches, cancelling, concluding, gates, listing
from tests.conformance.batches import end, filled, new_batch, opened
from tests.conformance.bench import Bench
from tests.conformance.samples import new_job

ON_OPEN = msgspec.json.encode(new_job(queue_name="told")).decode()


def openings(store: Bench) -> int:
    """How many jobs were enqueued because the gate opened."""
    return len(store.run(listing.list_jobs(queue_name="told")))


def test_a_gate_that_nobody_used_is_open(store: Bench) -> None:
    assert store.run(gates.find_gate("dataset:7")) is None
    assert store.run(gates.status("dataset:7")).unfinished == 0
    assert store.run(gates.locked_status("dataset:7")).unfinished == 0
    assert store.run(gates.list_gates()) == [gates.StoredGate("dataset:7", 0, 0, None)]


def test_the_first_batch_closes_a_gate_and_the_last_one_opens_it(store: Bench) -> None:
    store.run(gates.declare("dataset:7", on_open=ON_OPEN))
    first, second = filled(store, 1, "a", gate="dataset:7"), filled(store, 1, "b", gate="dataset:7")
    opened(store, "elsewhere", gate="dataset:8")
    opened(store, "a", gate="dataset:7")  # once more: the same

    for batch in (first, second):
        status = store.run(gates.locked_status("dataset:7"))
        assert status == store.run(gates.status("dataset:7"))
        assert batch.key in [one.batch.key for one in status.batches]
        assert openings(store) == 0
        store.run(concluding.seal(batch.id))
    end(store, 2)
    store.run(concluding.conclude(first.id))
    status = store.run(gates.status("dataset:7"))
    assert [(one.batch.key, one.counts) for one in status.batches] == [("b", Counts(completed=1))]
    assert openings(store) == 0
    store.run(concluding.conclude(second.id))

    assert store.run(gates.locked_status("dataset:7")) == gates.GateStatus(0)
    assert store.run(gates.find_gate("dataset:7")) == gates.StoredGate("dataset:7", 0, 1, store.now)
    assert openings(store) == 1


def test_every_opening_is_announced_once(store: Bench) -> None:
    for number in range(3):
        batch = store.run(batches.open_batch(new_batch(f"upload:{number}", gate="g"), on_open=ON_OPEN))
        store.run(concluding.seal(batch.id))
        store.run(concluding.conclude(batch.id))

    assert openings(store) == 3
    [gate] = store.run(gates.list_gates())
    assert (gate.unfinished, gate.openings) == (0, 3)


def test_only_the_first_unfinished_batches_are_listed(store: Bench) -> None:
    for number in range(gates.MOST_NAMED + 2):
        opened(store, f"upload:{number:02}", gate="dataset:7")

    status = store.run(gates.status("dataset:7"))

    assert status.unfinished == gates.MOST_NAMED + 2
    assert [one.batch.key for one in status.batches] == [f"upload:{n:02}" for n in range(gates.MOST_NAMED)]


def test_gates_are_listed_by_name_and_pages(store: Bench) -> None:
    for name in ("c", "a", "b"):
        store.run(gates.declare(name, on_open=None))

    first = store.run(gates.list_gates(most=2))

    assert [gate.name for gate in first] == ["a", "b"]
    assert [gate.name for gate in store.run(gates.list_gates(after="b", most=2))] == ["c"]


def test_a_cancelled_batch_opens_its_gate(store: Bench) -> None:
    batch = filled(store, 2, gate="dataset:7")

    store.run(cancelling.cancel_batch(batch.id, actor="ada"))
    assert store.run(gates.status("dataset:7")).unfinished == 1
    store.run(cancelling.cancel_items(batch.id))

    assert store.run(gates.status("dataset:7")).unfinished == 0
