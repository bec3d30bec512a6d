"""Work on some jobs never waits for others, even in tables so small that a database prefers to scan them."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from stagepost.database.statement import Statement
from stagepost.model.identity import new_id
from stagepost.model.outcome import Completed
from stagepost.store import jobs, leases, settling
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.plans import analyze, left_alone, plan_of
from tests.conformance.samples import LEASE, QUEUE, TASK, claim, new_job

LOCKS = re.compile(r"^(update|delete)\b|^for update$|^lock in share mode\b", re.MULTILINE)
PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


def test_rows_named_by_a_statement_are_found_without_locking_others(
    database_on_bench: Callable[[str], DatabaseOnBench],
) -> None:
    store = Bench(database_on_bench("mariadb"), Colour.SYNC)
    store.database.empty()
    sources = {path.name.removesuffix(".sql"): path.read_text() for path in _files()}
    named = {name: text for name, text in sources.items() if "json_table" in text and LOCKS.search(text)}

    whole = {}
    with left_alone(store):
        store.run(jobs.enqueue_many([new_job() for _ in range(3)]))
        analyze(store)
        for name, text in named.items():
            given = {parameter: _value(parameter) for parameter in PARAMETER.findall(text)}
            plan = plan_of(store, Statement(name, given))
            if read := plan.read_whole & {"job", "ended", "failure", "worker"}:
                whole[name] = (read, plan.text)

    assert len(named) > 10
    assert whole == {}


@pytest.fixture(params=["postgres", "mariadb"])  # SQLite has one writer at a time
def store(request: pytest.FixtureRequest, database_on_bench: Callable[[str], DatabaseOnBench]) -> Bench:
    database = database_on_bench(request.param)
    database.empty()
    return Bench(database, Colour.SYNC)


def test_an_enqueue_that_is_not_committed_yet_holds_up_no_other(store: Bench) -> None:
    own, [other] = store.database.store, store.database.racers(1)

    with own.transaction() as connection:
        own.drive(jobs.enqueue(new_job(unique_key="mine")), connection)

        assert other.run(jobs.enqueue(new_job(unique_key="theirs")), patience_seconds=0).is_new


def test_a_handler_that_ended_its_job_in_an_open_transaction_holds_up_no_other_worker(store: Bench) -> None:
    own, [other] = store.database.store, store.database.racers(1)
    store.run(jobs.enqueue_many([new_job() for _ in range(4)]))
    [mine] = claim(store, owner="worker-a")
    [renewed, ended] = claim(store, owner="worker-b", slots=2)

    with own.transaction() as connection:
        own.drive(settling.settle([Settlement.of(mine, Completed())]), connection)

        held = other.run(leases.renew([(renewed.id, 1)], owner="worker-b", lease=LEASE), patience_seconds=0).held
        settled = other.run(settling.settle([Settlement.of(ended, Completed())]), patience_seconds=0)
        claimed = other.run(
            leases.claim(QUEUE, owner="worker-c", task_names=[TASK], slots=9, lease=LEASE), patience_seconds=0
        )

    assert held == {(renewed.id, 1)}
    assert list(settled.values()) == [True]
    assert len(claimed) == 1


def _files() -> list[Any]:
    return [path for path in (files("stagepost.store") / "sql" / "mysql").iterdir() if path.name.endswith(".sql")]


def _value(parameter: str) -> object:
    lists = {"changes", "jobs", "leases", "failures", "runs"}
    if parameter in lists:
        return f'[{{"id":"{new_id()}","attempt":1,"owner":"w"}}]'
    return f'["{new_id()}"]' if parameter in {"ids", "states", "task_names"} else 1
