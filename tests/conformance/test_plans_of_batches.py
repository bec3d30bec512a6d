"""How statements on batches, gates and runs are run where there are many of them: through their index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from stagepost.model.identity import new_id
from stagepost.store.statement import Statement
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.conftest import DATABASES
from tests.conformance.plans import analyze, plan_of
from tests.conformance.pipelines import new_run

ROWS = 4_000
TABLES = ("stagepost_batch", "stagepost_gate", "stagepost_run")
RUN = new_run()
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
FIRST_ID = "00000000-0000-0000-0000-000000000000"
SAVED = {"state": "running", "steps": "{}", "starts": 1, "error": None, "cancelled_at": None, "ended_at": None}

STATEMENTS = [
    (Statement("run_of_id", {"id": RUN.id}), "primary key"),
    (Statement("lock_run", {"id": RUN.id}), "primary key"),
    (Statement("save_run", {"id": RUN.id, **SAVED}), "primary key"),
    (Statement("delete_run", {"id": RUN.id}), "primary key"),
    (Statement("run_of_key", {"pipeline": "dub", "run_key": "7"}), "unique key"),
    (Statement("lock_run_of_key", {"pipeline": "dub", "run_key": "7"}), "unique key"),
    (Statement("list_pipeline_runs", {"before": LAST_ID, "most": 50}), "primary key"),
    (Statement("list_pipeline_runs", {"before": LAST_ID, "most": 50, "state": "failed"}), "stagepost_run_state"),
    (Statement("lock_prunable_pipeline_runs", {"older_us": 10**15, "most": 100}), "stagepost_run_ended"),
    (Statement("batch_of_id", {"id": RUN.id}), "primary key"),
    (Statement("lock_batch", {"id": RUN.id}), "primary key"),
    (Statement("try_lock_batch", {"id": RUN.id}), "primary key"),
    (Statement("batch_of_key", {"batch_key": "upload:7"}), "unique key"),
    (Statement("idle_batches", {"after": FIRST_ID, "most": 100}), "stagepost_batch_state"),
    (Statement("unfinished_ids", {"after": FIRST_ID, "most": 100}), "stagepost_batch_state"),
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
    """Thousands of batches and runs that have ended, and a few that have not."""
    database = database_on_bench(request.param)
    database.empty()
    store = Bench(database, Colour.SYNC)
    with store.transaction() as connection:
        for number in range(ROWS):
            is_over = number % 100 > 0
            mark = "?" if store.dialect.name == "sqlite" else "%s"
            batch = (new_id(), f"upload:{number}", "batch", "done" if is_over else "open", f"dataset:{number}", "finish")
            rest = (FIRST_ID, LAST_ID, 0, number if is_over else None, 0, 0)
            insert(connection, mark, "stagepost_batch", BATCH_COLUMNS, (*batch, *rest))
            run = (RUN.id if number == 7 else new_id(), str(number), "dub", "completed" if is_over else "running")
            insert(connection, mark, "stagepost_run", RUN_COLUMNS, (*run, "{}", "{}", "{}", 1, 0, 0, number if is_over else None))
            insert(connection, mark, "stagepost_gate", "name, unfinished, openings, updated_at", (f"dataset:{number}", 0, 0, 0))
    analyze(store, *TABLES)
    yield store
    database.empty()
    analyze(store, *TABLES)
