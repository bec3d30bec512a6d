"""Maintaining a large batch costs as little as a small one, because nothing reads all its items."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import pytest

from stagepost.database.statement import Operation, Rows, Statement, Statements, Step, operation
from stagepost.model.batch import BatchState
from stagepost.store import batches, concluding, runs
from tests.conformance.batches import end, filled
from tests.conformance.bench import Bench
from tests.conformance.pipelines import new_run, step
from tests.conformance.samples import claim

ITEMS = 20


@pytest.fixture
def store(blocking_store: Bench) -> Bench:
    return blocking_store


def sealed(store: Bench, *, ended: int) -> str:
    """Store a batch in which `ended` items have ended and some of the others run."""
    batch = filled(store, ITEMS)
    store.run(concluding.seal(batch.id))
    end(store, ended)
    claim(store, slots=3)
    return batch.id


def statements_of(store: Bench, work: Operation[Any]) -> list[Statement]:
    """Run an operation and return what it asked the database."""
    asked: list[Step] = []
    store.run(_noting(work, asked))
    return [step for step in asked if isinstance(step, Statement)]


@operation
def _noting(work: Operation[Any], asked: list[Step]) -> Statements[Any]:
    steps: Generator[Step, Rows, Any] = iter(work)
    try:
        step = next(steps)
        while True:
            asked.append(step)
            step = steps.send((yield step))
    except StopIteration as stop:
        return stop.value


@pytest.mark.parametrize("name", ["count_batch", "idle_batches"])
def test_whether_items_of_a_batch_live_is_found_out_without_reading_them(store: Bench, name: str) -> None:
    """Both run repeatedly while a batch is processed."""
    batch_id = sealed(store, ended=ITEMS // 2)
    operations = {"count_batch": concluding.try_conclude(batch_id), "idle_batches": batches.idle_batches()}
    style = store.database.store.database.style

    asked = statements_of(store, operations[name])

    assert name in [statement.name for statement in asked]
    for statement in asked:
        given = statement.parameters.keys()
        for text in store.dialect.script(statement.name, style, own_clock=True, given=given).texts:
            assert not re.search(r"\bstagepost_job(_history)?\b", text.sql), text.sql


def test_a_step_that_starts_does_not_count_the_jobs_that_it_has_just_enqueued(store: Bench) -> None:
    run = new_run(step("speak"))

    asked = statements_of(store, runs.start(run))

    assert "count_batch" not in [statement.name for statement in asked]
    [batch_id] = store.run(runs.get(run.id)).steps["speak"].batches
    assert store.run(batches.get(batch_id)).state is BatchState.SEALED
