"""The upkeep loops for batches and gates, on every database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from stagepost.database.async_store import AsyncStore
from stagepost.loops.signals import Signals
from stagepost.model.batch import Counts
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import batches, cancelling, concluding, counting, gates, jobs
from stagepost.store.gates import GateCount
from stagepost.upkeep import batch_rescuer, recounter
from stagepost.upkeep.batch_rescuer import BatchRescuer
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.recounter import Recounter
from tests.conformance.batches import TOLD, end, filled, new_batch, opened, told
from tests.conformance.bench import Bench
from tests.conformance.families import claim_children, submit
from tests.conformance.samples import claim, running, settle

GATE = "dataset:7"


@pytest.fixture
def store(blocking_store: Bench) -> Bench:
    return blocking_store


@pytest.fixture
def own_store(store: Bench) -> Iterator[AsyncStore]:
    own_store = AsyncStore(store.database.store)
    yield own_store
    own_store.close()


@pytest.fixture
def leader(store: Bench, own_store: AsyncStore) -> Leader:
    """One that leads."""
    leader = Leader(own_store, Signals(), owner="worker-a", clock=store.clock)
    assert asyncio.run(leader.run_once())
    return leader


@pytest.fixture
def recounting(own_store: AsyncStore, leader: Leader, monkeypatch: pytest.MonkeyPatch) -> Recounter:
    """One that takes several pages."""
    monkeypatch.setattr(recounter, "MOST_AT_ONCE", 2)
    return Recounter(own_store, leader)


def plant(store: Bench, unfinished: int) -> None:
    store.rows("update stagepost_gate set unfinished = :number where name = :name", number=unfinished, name=GATE)


def test_a_batch_that_counts_wrongly_is_reported_and_repaired(
    store: Bench, recounting: Recounter, caplog: pytest.LogCaptureFixture
) -> None:
    _, _, _, batch = (filled(store, 2, f"upload:{number}") for number in range(4))
    store.run(counting.fold())
    scope = counting.batch_scope(batch.id)
    store.rows("update stagepost_count set jobs = jobs + 3 where scope = :scope", scope=scope)

    with caplog.at_level(logging.ERROR):
        [drift] = asyncio.run(recounting.recount_batches())

    assert (drift.counted, drift.found) == (5, 2)
    assert caplog.messages == [f"{scope} counted 5 jobs as active, and has 2; the count is corrected"]
    assert store.run(counting.count_items(batch.id)) == Counts(queued=2)
    assert asyncio.run(recounting.recount_batches()) == []


@pytest.mark.parametrize("planted", [0, 1, 5, -2])
def test_a_gate_that_counts_wrongly_is_reported_and_repaired(
    store: Bench, recounting: Recounter, caplog: pytest.LogCaptureFixture, planted: int
) -> None:
    """F67: whatever it counted, it opens once, when the last batch is done."""
    store.run(gates.declare(GATE, on_open=TOLD))
    for name in ("dataset:1", "dataset:8", "dataset:9"):
        opened(store, name, gate=name)
    pair = [filled(store, 1, key, gate=GATE) for key in "ab"]
    plant(store, planted)

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(recounting.recount_gates()) == [GateCount(GATE, planted, 2)]

    assert caplog.messages == [f"gate {GATE!r} counted {planted} unfinished batches, and has 2; the count is corrected"]
    assert asyncio.run(recounting.recount_gates()) == []
    end(store, 2)
    for batch in pair:
        assert (store.run(gates.status(GATE)).unfinished, told(store)) == (2 - pair.index(batch), 0)
        store.run(concluding.seal(batch.id))
    assert told(store) == 1


def test_a_gate_that_is_closed_by_no_batch_opens(store: Bench, recounting: Recounter) -> None:
    """F67: the last batch is done, and the gate did not hear of it."""
    store.run(gates.declare(GATE, on_open=TOLD))
    store.run(concluding.seal_key(new_batch(gate=GATE)))
    plant(store, 3)

    assert asyncio.run(recounting.recount_gates()) == [GateCount(GATE, 3, 0)]

    assert store.run(gates.find_gate(GATE)) == gates.StoredGate(GATE, 0, 2, store.now)
    assert told(store) == 2
    assert asyncio.run(recounting.recount_gates()) == []


def test_a_gate_is_right_while_batches_begin_and_end(store: Bench) -> None:
    """Nobody is between the look and the change: a repair at the same instant changes nothing."""
    for number in range(8):
        ending = opened(store, f"a:{number}", gate=GATE)
        race = [
            concluding.seal(ending.id),
            batches.open_batch(new_batch(f"b:{number}", gate=GATE)),
            gates.repair_gate(GATE),
        ]
        seen = store.race(*race[number % 3 :], *race[: number % 3])

        assert all(one.is_right for one in seen if isinstance(one, GateCount))
        [count] = store.run(gates.count_gates())
        assert (count.counted, count.found) == (number + 1, number + 1)


def waiting_chain(store: Bench, depth: int) -> list[str]:
    """A parent, its child, the child's child and so on: all wait but the last, which is queued."""
    job = running(store)
    ids = [job.id]
    for _ in range(depth - 1):
        ids += submit(store, job)
        settle(store, job, Completed())
        if len(ids) < depth:
            [job] = claim_children(store)
    return ids


def test_a_deep_tree_is_cancelled_in_one_pass(
    store: Bench, own_store: AsyncStore, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier cancelled batches still have running items."""
    monkeypatch.setattr(batch_rescuer, "MOST_AT_ONCE", 2)
    stopping = [filled(store, 1, f"upload:{number}") for number in range(3)]
    claim(store, slots=3)
    for batch in stopping:
        store.run(cancelling.cancel_batch(batch.id, actor="ada"))
    chain = waiting_chain(store, 6)
    assert store.run(cancelling.cancel_job(chain[0], actor="ada")) is JobState.WAITING

    asyncio.run(BatchRescuer(own_store, leader, Signals()).run_once())

    assert {store.run(jobs.get(job_id)).state for job_id in chain} == {JobState.CANCELLED}
    assert store.run(batches.cancelled_batches()) == [batch.id for batch in stopping]


def test_a_pass_that_cancels_ends_though_a_tree_goes_on_below(
    store: Bench, own_store: AsyncStore, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_rescuer, "MOST_LEVELS", 2)
    chain = waiting_chain(store, 6)
    store.run(cancelling.cancel_job(chain[0], actor="ada"))
    rescuer = BatchRescuer(own_store, leader, Signals())

    asyncio.run(rescuer.run_once())
    assert store.run(jobs.get(chain[-1])).state is JobState.QUEUED
    asyncio.run(rescuer.run_once())
    asyncio.run(rescuer.run_once())

    assert {store.run(jobs.get(job_id)).state for job_id in chain} == {JobState.CANCELLED}
