"""Statements on batches, gates and runs use their index when there are many rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stagepost.database.statement import Statement
from stagepost.model.identity import new_id
from stagepost.store import jobs
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.plans import analyze, copy_to_history, left_alone, plan_of
from tests.conformance.samples import new_job
from tests.depth import DATABASES

ROWS = 4_000
RUN_ID, BATCH_ID = new_id(), new_id()
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
FIRST_ID = "00000000-0000-0000-0000-000000000000"
SAVED = {"state": "running", "steps": "{}", "starts": 1, "error": None, "cancelled_at": None, "ended_at": None}

STATEMENTS = [
    (Statement("run_of_id", {"id": RUN_ID}), "primary key"),
    (Statement("lock_run", {"id": RUN_ID}), "primary key"),
    (Statement("save_run", {"id": RUN_ID, **SAVED}), "primary key"),
    (Statement("delete_run", {"id": RUN_ID}), "primary key"),
    (Statement("run_of_key", {"pipeline": "dub", "run_key": "7"}), "unique key"),
    (Statement("lock_run_of_key", {"pipeline": "dub", "run_key": "7"}), "unique key"),
    (Statement("list_pipeline_runs", {"before": LAST_ID, "most": 50}), "primary key"),
    (Statement("list_pipeline_runs", {"before": LAST_ID, "most": 50, "state": "failed"}), "stagepost_run_state"),
    (Statement("lock_prunable_pipeline_runs", {"older_us": 10**15, "most": 100}), "stagepost_run_ended"),
    (Statement("batch_of_id", {"id": BATCH_ID}), "primary key"),
    (Statement("lock_batch", {"id": BATCH_ID}), "primary key"),
    (Statement("try_lock_batch", {"id": BATCH_ID}), "primary key"),
    (Statement("batch_of_key", {"batch_key": "upload:7"}), "unique key"),
    (Statement("idle_batches", {"after": FIRST_ID, "most": 100}), "stagepost_batch_state"),
    (Statement("unfinished_ids", {"after": FIRST_ID, "most": 100}), "stagepost_batch_state"),
    (Statement("count_unfinished_batches", {"most": 100}), "stagepost_batch_state"),
    (Statement("lock_prunable_batches", {"older_us": 10**15, "most": 100}), "stagepost_batch_done"),
    (Statement("unfinished_batches", {"gate": "dataset:7", "most": 10}), "stagepost_batch_gate"),
    (Statement("count_unfinished", {"gate": "dataset:7"}), "stagepost_batch_gate"),
    (Statement("count_gates", {"after": "", "most": 100}), "stagepost_batch_gate"),
]
KEYS = {
    "sqlite": {"primary key": r"sqlite_autoindex_stagepost_\w+_1", "unique key": r"sqlite_autoindex_stagepost_\w+_2"},
    "postgres": {"primary key": r"stagepost_\w+_pkey", "unique key": r"stagepost_\w+_key"},
    "mysql": {"primary key": r"\bPRIMARY\b", "unique key": r"\b(batch_key|pipeline|stagepost_run_key)\b"},
}


@pytest.fixture(scope="module", params=DATABASES)
def store(request: pytest.FixtureRequest, database_on_bench: Callable[[str], DatabaseOnBench]) -> Iterator[Bench]:
    """Thousands of batches and runs that have ended, and a few that have not; as many jobs, which are of none."""
    database = database_on_bench(request.param)
    database.empty()
    store = Bench(database, Colour.SYNC)
    with left_alone(store):
        for first in range(0, ROWS, 500):
            numbers = range(first, first + 500)
            fill(store, "stagepost_batch", [_batch(number) for number in numbers])
            fill(store, "stagepost_run", [_run(number) for number in numbers])
            fill(store, "stagepost_gate", [_gate(number) for number in numbers])
        store.run(jobs.enqueue_many([new_job() for _ in range(ROWS)]))
        copy_to_history(store)
        analyze(store)
        yield store
    database.empty()
    analyze(store)


def fill(store: Bench, table: str, rows: list[dict[str, Any]]) -> None:
    """Insert rows of one shape with one statement."""
    values = ", ".join("(" + ", ".join(_literal(value) for value in row.values()) + ")" for row in rows)
    store.rows(f"insert into {table} ({', '.join(rows[0])}) values {values}")


def _literal(value: object) -> str:
    return "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _batch(number: int) -> dict[str, Any]:
    is_over = number % 100 > 0
    times = {"done_at": number if is_over else None, "created_at": 0, "updated_at": 0}
    return {
        "id": BATCH_ID if number == 7 else new_id(),
        "batch_key": f"upload:{number}",
        "kind": "batch",
        "state": "done" if is_over else "open",
        "gate": f"dataset:{number}",
        "on_failed": "finish",
        "first_id": FIRST_ID,
        "last_id": FIRST_ID,
        "position": 0,
        **times,
    }


def _run(number: int) -> dict[str, Any]:
    is_over = number % 100 > 0
    return {
        "id": RUN_ID if number == 7 else new_id(),
        "run_key": str(number),
        "pipeline": "dub",
        "state": "completed" if is_over else "running",
        "plan": "{}",
        "input": "{}",
        "steps": "{}",
        "starts": 1,
        "created_at": 0,
        "updated_at": 0,
        "ended_at": number if is_over else None,
    }


def _gate(number: int) -> dict[str, Any]:
    return {"name": f"dataset:{number}", "unfinished": 0, "openings": 0, "updated_at": 0}


@pytest.mark.parametrize(("statement", "index"), STATEMENTS, ids=[statement.name for statement, _ in STATEMENTS])
def test_a_statement_on_batches_or_runs_goes_through_its_index(store: Bench, statement: Statement, index: str) -> None:
    plan = plan_of(store, statement, small_tables=False)

    assert not plan.read_whole & {"stagepost_batch", "stagepost_run", "batch"}, plan.text
    assert re.search(KEYS[store.dialect.name].get(index, index), plan.text), plan.text
