"""The machine for batches: producers, operators and upkeep, in addition to everything the machine for jobs does."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from stagepost.database.statement import Operation, Statements, operation
from stagepost.errors import BatchClosed
from stagepost.model.batch import Cursor, Item, NewBatch, OnFailed
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import FINAL
from stagepost.store import batch_items, batches, cancelling, concluding, counting, gates
from tests.property.batch_model import BATCH_TABLES, BatchModel, ModelBatch
from tests.property.machine import ACTOR, MANY, JobMachine
from tests.property.strategies import ANY, QUEUES, TASKS, job_id_of, wishes
from tests.property.world import Rows, World

GATE = "dataset:7"
BATCHES: dict[str, dict[str, Any]] = {
    "upload:1": {"gate": GATE},
    "upload:2": {"gate": GATE, "on_failed": OnFailed.HOLD},
    "upload:3": {"on_failed": OnFailed.HOLD},
}
COMPLETION = NewJob(id=job_id_of(0), task_name=TASKS[0], queue_name=QUEUES[0], payload='{"done":true}')
FIRST_ID = 20_000
"""Batches have other ids than jobs."""
ITEMS = 8
"""How many items the source of each batch has."""
KEYS = st.sampled_from(sorted(BATCHES))
CHOICES = st.fixed_dictionaries(
    {
        "keys": st.none() | st.lists(st.sampled_from([f"f{number}" for number in range(ITEMS)]), max_size=3),
        "most": st.sampled_from([1, 2, MANY]),
        "after": st.sampled_from(["", "", "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
    }
)


def batch_world(url: str) -> World:
    """A world with batches in it."""
    return World(url, model=BatchModel, tables=BATCH_TABLES)


@operation
def add(new: NewBatch, items: list[Item], cursor: Cursor | None) -> Statements[tuple[int, Cursor]]:
    """Open and add in one transaction, as a producer does with its first chunk, or in the caller's transaction."""
    batch = yield from batches.open_batch(new)
    added = yield from batches.add_items(batch.id, items, cursor=cursor)
    return added.new, added.cursor


class BatchMachine(JobMachine):
    """Does the same to the store's batches and to the model's."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.model: BatchModel
        self.model.completion = COMPLETION
        self.batches_asked = 0

    def new_batch(self, key: str) -> NewBatch:
        """Declare a batch as another process would: with an id that counts if it is the first."""
        self.batches_asked += 1
        template = msgspec.json.encode(COMPLETION).decode()
        return NewBatch(id=job_id_of(FIRST_ID + self.batches_asked), key=key, on_complete=template, **BATCHES[key])

    def pick_batch(self, number: int) -> ModelBatch:
        known = list(self.model.batches.values())
        return known[number % len(known)]

    # ---- producers

    @rule(
        key=KEYS,
        size=st.integers(1, 4),
        goes_on=st.sampled_from([True, True, False]),
        has_cursor=st.booleans(),
        wish=wishes(),
        how=st.sampled_from(["alone", "alone", "commit", "rollback"]),
    )
    def add_chunk(self, key: str, size: int, goes_on: bool, has_cursor: bool, wish: dict[str, Any], how: str) -> None:
        """Go on from the cursor, or begin again as a producer without one does."""
        known = self.model.batches.get(key)
        first = known.position % ITEMS if goes_on and known else 0
        wish = {**wish, "unique_key": None, "unique_for_us": None}
        items = [
            Item(f"f{number}", NewJob(id=job_id_of(0), payload=f'{{"item":{number}}}', **wish))
            for number in range(first, min(first + size, ITEMS))
        ]
        cursor = Cursor(first + len(items), items[-1].key) if has_cursor else None
        new = self.new_batch(key)
        self._in(how, add(new, items, cursor), lambda: self.model.add(new, items, cursor))

    @rule(key=KEYS, how=st.sampled_from(["alone", "alone", "commit", "rollback"]))
    def seal(self, key: str, how: str) -> None:
        new = self.new_batch(key)
        self._in(how, _state_of(concluding.seal_key(new)), lambda: self.model.seal(new))

    def _in(self, how: str, operation: Operation[Any], model: Any) -> None:
        """Run it alone or in the caller's transaction, which may be rolled back."""
        if how == "rollback":
            self.is_sound = False
            try:
                self.world.run_in_callers_transaction(operation, commit=lambda _: False)
            except BatchClosed:
                return
        elif how == "commit":
            self.same(lambda: self.world.run_in_callers_transaction(operation, commit=lambda _: True), model)
        else:
            self.same(lambda: self.world.run(operation), model)

    # ---- what follows when items have ended

    @precondition(lambda self: self.model.batches)
    @rule(which=ANY, tries=st.booleans())
    def conclude(self, which: int, tries: bool) -> None:
        batch = self.pick_batch(which)
        operation = concluding.try_conclude(batch.id) if tries else concluding.conclude(batch.id)
        self.same(lambda: self.world.run(_state_of(operation)), lambda: self.model.conclude(batch))

    @rule()
    def reconcile(self) -> None:
        """As upkeep does."""
        self.same(lambda: self.world.run(batches.cancelled_batches()), self.model.cancelled)
        for batch in list(self.model.batches.values()):
            if batch.state != "done" and batch.cancelled_at is not None:
                self.cancel_items_of(batch, MANY)
        self.same(lambda: self.world.run(batches.idle_batches()), self.model.idle)
        for which, batch in enumerate(list(self.model.batches.values())):
            self.conclude(which, tries=True)
            assert self.world.run(counting.find_batch_drift(batch.id)) == []

    @rule(older=st.sampled_from([0, 60]))
    def prune_batches(self, older: int) -> None:
        operation = batches.prune_batches(timedelta(seconds=older))
        self.same(lambda: self.world.run(operation), lambda: self.model.prune_batches(older * 1_000_000))

    # ---- operators

    @precondition(lambda self: self.model.batches)
    @rule(which=ANY, choice=CHOICES)
    def retry_failed(self, which: int, choice: dict[str, Any]) -> None:
        batch = self.pick_batch(which)
        operation = batch_items.retry_failed(batch.id, actor=ACTOR, **choice)
        self.same(lambda: self.world.run(operation), lambda: self.model.retry_failed(batch, ACTOR, **choice))

    @precondition(lambda self: self.model.batches)
    @rule(which=ANY, choice=CHOICES)
    def waive(self, which: int, choice: dict[str, Any]) -> None:
        batch = self.pick_batch(which)
        operation = batch_items.waive(batch.id, actor=ACTOR, why="a test tone", **choice)
        self.same(lambda: self.world.run(operation), lambda: self.model.waive(batch, ACTOR, "a test tone", **choice))

    @precondition(lambda self: self.model.batches)
    @rule(which=ANY, is_meant=st.sampled_from([True, False, False]), most=st.sampled_from([1, MANY]))
    def cancel_batch(self, which: int, is_meant: bool, most: int) -> None:
        """Now and then only: most batches should get further."""
        batch = self.pick_batch(which)
        if is_meant:
            operation = _state_of(cancelling.cancel_batch(batch.id, actor=ACTOR))
            self.same(lambda: self.world.run(operation), lambda: self.model.cancel_batch(batch, ACTOR))
        if batch.cancelled_at is not None:
            self.cancel_items_of(batch, most)

    def cancel_items_of(self, batch: ModelBatch, most: int) -> None:
        operation = cancelling.cancel_items(batch.id, most=most)
        self.same(lambda: self.world.run(operation), lambda: self.model.cancel_items(batch, most))

    # ---- what must hold after every step

    @invariant()
    def batches_are_as_the_model_says(self) -> None:
        for batch in self.model.batches.values():
            counts = msgspec.structs.asdict(self.world.run(counting.count_items(batch.id)))
            assert {state: jobs for state, jobs in counts.items() if jobs} == self.model.counts_of(batch)
        status = self.world.run(gates.status(GATE))
        gate = self.model.gates.get(GATE)
        assert status.unfinished == (gate.unfinished if gate else 0)

    def check_invariants_of_rows(self, rows: Rows) -> None:
        """From the rows alone, too: done once, not early, and its gate closed until then."""
        self.accepted |= set(self.model.born)
        super().check_invariants_of_rows(rows)
        jobs = [*rows.tables["stagepost_job"], *rows.tables["stagepost_job_history"]]
        live = Counter(row[BATCH_ID] for row in jobs if row[3] not in FINAL)
        was_done = {row[1] for row in self.before.tables.get("stagepost_batch", ()) if row[2] == "done"}
        unfinished = 0
        for row in rows.tables["stagepost_batch"]:
            batch_id, state, gate = row[1:4]
            unfinished += gate is not None and state != "done"
            if state == "done" and batch_id not in was_done:
                assert not live[batch_id], "it was done while items lived"
            times_told = self.model.born.count(ModelBatch("", batch_id, None, "", 0).completion_id)
            assert times_told == (state == "done"), "it is told once that a batch is done, and not before"
        assert sum(row[1] for row in rows.tables["stagepost_gate"]) == unfinished, "a gate counts wrongly"

    def teardown(self) -> None:
        """When all jobs have ended, producers seal and operators waive, no batch is left and the gate is open."""
        super().teardown()
        if not self.is_sound:
            return
        for key in list(self.model.batches):
            self.seal(key, "alone")
            self.waive(list(self.model.batches).index(key), {"keys": None, "most": MANY, "after": ""})
        self.reconcile()
        self.the_store_is_as_the_model_says()
        self.batches_are_as_the_model_says()
        assert {batch.state for batch in self.model.batches.values()} <= {"done"}
        assert all(gate.unfinished == 0 for gate in self.model.gates.values())


BATCH_ID = 12
"""Where a job's row has its batch's id."""


@operation
def _state_of(operation: Operation[Any]) -> Statements[str | None]:
    batch = yield from operation
    return batch and str(batch.state)
