"""The costs of the hot operations in units that any machine can count: calls, rows and log, never seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stagepost.database import Store
from stagepost.database.dialect import arranged
from stagepost.database.statement import Operation, Statement, as_json
from stagepost.model.identity import new_id
from stagepost.model.outcome import Completed
from stagepost.store import jobs, leases, settling
from stagepost.store.counting import PARTS, repair
from stagepost.store.listing import list_jobs
from stagepost.store.sending import mark_sent, take_delivered, unsent
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.counted import Counted
from tests.conformance.plans import analyze, left_alone
from tests.conformance.samples import LEASE, QUEUE, TASK, new_job, new_series

BATCH = 500


@pytest.fixture
def store(blocking_store: Bench) -> Bench:
    return blocking_store


@pytest.fixture
def quiet_store(store: Bench) -> Iterator[Bench]:
    """As `store`, where nothing that others left or the server does meanwhile is counted."""
    with left_alone(store):
        yield store


def calls_of_a_life(store: Bench) -> dict[str, list[str]]:
    """The calls that enqueue, claim and end jobs, each in a separate operation."""
    counted = Counted(store.database.store.database)
    counting = Store(counted, clock=store.clock, pool_size=1)
    found: dict[str, list[str]] = {}

    def note(name: str) -> None:
        found[name], counted.calls[:] = list(counted.calls), []

    counting.run(jobs.enqueue(new_job()))
    note("enqueue one")
    counting.run(jobs.enqueue_many([new_job() for _ in range(BATCH - 1)]))
    note("enqueue many")
    counting.run(jobs.enqueue_many(new_series(BATCH)))
    note("enqueue many of one task")
    leased = counting.run(leases.claim(QUEUE, owner="w", task_names=[TASK], slots=BATCH, lease=LEASE))
    note("claim")
    counting.run(settling.settle([Settlement.of(job, Completed("1")) for job in leased]))
    note("settle")
    counting.run(leases.claim(QUEUE, owner="w", task_names=[TASK], slots=BATCH, lease=LEASE))
    note("claim nothing")
    counting.run(list_jobs(most=1))
    note("list")
    counting.run(jobs.enqueue_many([new_job() for _ in range(BATCH)]))
    counted.calls[:] = []
    messages = [(job.id, job.attempt) for job in counting.run(unsent(QUEUE, most=BATCH))]
    note("find what is to be sent")
    counting.run(mark_sent(messages))
    note("mark as sent")
    taken = counting.run(take_delivered(QUEUE, messages, owner="w", task_names=[TASK], lease=LEASE))
    note("take deliveries")
    counting.close()
    assert len(leased) == len(taken.jobs) == BATCH
    return found


LOAD = ["begin", "select", "select", "load", "insert"]
"""Are they known, what time is it, put them, count them; one job goes the ordinary way, which tells listeners."""
CALLS = {
    # Writing alone needs no transaction around it, reading none at all; how many jobs there are makes no difference.
    "postgres": {
        "enqueue one": ["with"],
        "enqueue many": [*LOAD, "with", "commit"],
        "claim": ["with"],
        "settle": ["with"],
        "claim nothing": ["with"],
        "list": ["select", "select"],
        "find what is to be sent": ["select"],
        "mark as sent": ["with"],
        "take deliveries": ["with"],
    },
    "mysql": {
        "enqueue one": ["begin", "select", "insert", "insert", "commit"],
        "enqueue many": ["begin", "select", "select", "load", "insert", "select", "insert", "insert", "commit"],
        "claim": ["begin", "select", "update", "commit"],
        "settle": ["begin", "select", "insert", "insert", "delete", "insert", "commit"],
        "claim nothing": ["begin", "select", "commit"],
        "list": ["select", "select"],
        "find what is to be sent": ["select"],
        "mark as sent": ["begin", "select", "update", "commit"],
        "take deliveries": ["begin", "select", "update", "commit"],
    },
    "sqlite": {
        "enqueue one": ["begin", "insert", "insert", "commit"],
        "enqueue many": [*LOAD, "insert", "insert", "commit"],
        "claim": ["update"],
        "settle": ["begin", "select", "insert", "insert", "insert", "delete", "commit"],
        "claim nothing": ["update"],
        "list": ["begin", "select", "select", "commit"],
        "find what is to be sent": ["begin", "select", "commit"],
        "mark as sent": ["update"],
        "take deliveries": ["update"],
    },
}


def test_a_jobs_life_takes_no_more_calls_than_it_must(store: Bench) -> None:
    calls = CALLS[store.dialect.name]

    assert calls_of_a_life(store) == {**calls, "enqueue many of one task": calls["enqueue many"]}


def calls_of_a_carried_life(store: Bench) -> dict[str, list[str]]:
    """The calls that a broker adds: read unsent jobs, mark them as sent, claim deliveries."""
    store.run(jobs.enqueue_many([new_job() for _ in range(BATCH)]))
    counted = Counted(store.database.store.database)
    counting = Store(counted, clock=store.clock, pool_size=1)
    found: dict[str, list[str]] = {}

    def note(name: str) -> None:
        found[name], counted.calls[:] = list(counted.calls), []

    to_send = counting.run(unsent(QUEUE, most=BATCH))
    note("read")
    fences = [(job.id, job.attempt) for job in to_send]
    counting.run(mark_sent(fences))
    note("mark")
    taken = counting.run(take_delivered(QUEUE, fences, owner="w", task_names=[TASK], lease=LEASE))
    note("take")
    again = counting.run(take_delivered(QUEUE, fences, owner="w", task_names=[TASK], lease=LEASE))
    note("take again")
    counting.close()
    assert (len(taken.jobs), len(again.jobs), len(again.stale)) == (BATCH, 0, BATCH)
    return found


CARRIED_CALLS = {
    # How many jobs there are makes no difference. What comes twice is looked for once more, to know what it was.
    "postgres": {"read": ["select"], "mark": ["with"], "take": ["with"],
                 "take again": ["with", "begin", "select", "commit"]},
    "mysql": {"read": ["select"], "mark": ["begin", "select", "update", "commit"],
              "take": ["begin", "select", "update", "commit"], "take again": ["begin", "select", "select", "commit"]},
    "sqlite": {"read": ["begin", "select", "commit"], "mark": ["update"], "take": ["update"],
               "take again": ["update", "begin", "select", "commit"]},
}  # fmt: skip


def test_a_broker_adds_no_more_calls_than_it_must(store: Bench) -> None:
    assert calls_of_a_carried_life(store) == CARRIED_CALLS[store.dialect.name]


@dataclass(frozen=True)
class Cost:
    """What PostgreSQL says a statement did, per job."""

    log_records: float
    log_bytes: float
    pages: float


def cost_of(store: Bench, statement: Statement, *, jobs: int) -> Cost:
    """Run a statement under EXPLAIN; full pages, which the log has after a checkpoint, are left out."""
    style = store.database.store.database.style
    [text] = store.dialect.script(statement.name, style, own_clock=True, given=statement.parameters.keys()).texts
    given = {**statement.parameters, "now": store.now}
    with store.transaction() as connection:
        [(found,)] = connection.execute(
            f"explain (analyze, wal, buffers, format json) {text.sql}", arranged(text, given, style)
        )
    [facts] = found if isinstance(found, list) else json.loads(found)
    plan = facts["Plan"]
    return Cost(
        log_records=plan["WAL Records"] / jobs,
        log_bytes=(plan["WAL Bytes"] - 8192 * plan["WAL FPI"]) / jobs,
        pages=(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) / jobs,
    )


def test_the_rows_that_a_job_writes_and_reads_stay_few(quiet_store: Bench) -> None:
    store = quiet_store
    if store.dialect.name != "postgres":
        pytest.skip("only PostgreSQL tells what a statement cost")
    store.run(jobs.enqueue_many([new_job(payload=as_json({"text": "x" * 200})) for _ in range(BATCH * 4)]))
    analyze(store, "stagepost_job")
    claiming = Statement(
        "claim_jobs",
        {
            "queue_name": QUEUE,
            "owner": "w",
            "task_names": as_json([TASK]),
            "slots": BATCH,
            "lease_us": round(LEASE / timedelta(microseconds=1)),
            "suspect_crashes": 2,
        },
    )

    claim = cost_of(store, claiming, jobs=BATCH)
    leased = store.rows("select id, attempts, locked_by from stagepost_job where state = 'running'")
    changes = [
        {"id": str(job_id), "attempt": attempt, "owner": owner, "state": "completed", "result": "1"}
        for job_id, attempt, owner in leased
    ]
    end = cost_of(store, Statement("end_jobs", {"changes": as_json(changes)}), jobs=BATCH)
    for part in PARTS:  # explained statements recorded no moves
        store.run(repair(part))

    # A claim locks a row, writes its new version, and entries in two indexes; an end deletes one row, writes
    # another, and an entry in two indexes.
    assert claim.log_records < 5.2, claim
    assert claim.log_bytes < 800, claim
    assert claim.pages < 20, claim
    assert end.log_records < 4.5, end
    assert end.log_bytes < 800, end
    assert end.pages < 20, end


def pages_of_jobs(store: Bench) -> int:
    """How many bytes the pages take that hold the rows of live jobs."""
    store.rows("analyze table stagepost_job")
    [(size,)] = store.rows(
        "select data_length from information_schema.tables where table_schema = database() "
        "and table_name = 'stagepost_job'"
    )
    return int(size)


def test_a_claim_updates_its_row_in_place(quiet_store: Bench) -> None:
    store = quiet_store
    if store.dialect.name != "mysql":
        pytest.skip("only MySQL keeps a changed row where it was, among others that are close together")
    store.run(jobs.enqueue_many([new_job(payload=as_json({"text": "x" * 200})) for _ in range(BATCH * 20)]))
    store.rows("alter table stagepost_job force")  # else pages of jobs that others left may be freed meanwhile
    before = pages_of_jobs(store)

    leased = store.run(leases.claim(QUEUE, owner=new_id(), task_names=[TASK], slots=BATCH * 20, lease=LEASE))

    assert len(leased) == BATCH * 20
    assert pages_of_jobs(store) == before


def first_of(operation: Operation[Any]) -> Statement:
    step = next(iter(operation))
    assert isinstance(step, Statement)
    return step


def test_the_extra_rows_that_a_carried_job_writes_and_reads_stay_few(quiet_store: Bench) -> None:
    store = quiet_store
    if store.dialect.name != "postgres":
        pytest.skip("only PostgreSQL tells what a statement cost")
    store.run(jobs.enqueue_many([new_job(payload=as_json({"text": "x" * 200})) for _ in range(BATCH * 4)]))
    analyze(store, "stagepost_job")
    to_send = store.run(unsent(QUEUE, most=BATCH))
    fences = [(job.id, job.attempt) for job in to_send]

    read = cost_of(store, first_of(unsent(QUEUE, most=BATCH)), jobs=BATCH)
    mark = cost_of(store, first_of(mark_sent(fences)), jobs=BATCH)
    taking = take_delivered(QUEUE, fences, owner="w", task_names=[TASK], lease=LEASE)
    take = cost_of(store, first_of(taking), jobs=BATCH)

    # A mark locks a row, writes its new version, and entries in two indexes; so does a claim by id.
    assert store.rows("select count(*) from stagepost_job where state = 'running' and sent_at is null") == [(BATCH,)]
    assert read.log_records == 0, read
    assert read.pages < 1, read
    assert mark.log_records < 5.2, mark
    assert mark.log_bytes < 700, mark
    assert mark.pages < 25, mark
    assert take.log_records < 5.2, take
    assert take.log_bytes < 700, take
    assert take.pages < 25, take
