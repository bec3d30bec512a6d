"""The statements of carried queues use their index with 100,000 sent and 100,000 unsent jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stagepost.database.statement import Statement, as_json
from stagepost.model.identity import new_id
from stagepost.store import jobs
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.plans import SORTS, analyze, goes_through, kept_plan_of, left_alone, plan_of
from tests.conformance.samples import new_job
from tests.depth import DATABASES, sized

SENT = sized(20_000, 100_000)
QUEUES = ("mail", "print")
IDS = [new_id() for _ in range(200)]
NEW_ID = {"sqlite": "lower(hex(randomblob(16)))", "postgres": "gen_random_uuid()", "mysql": "uuid()"}
COPIED = (
    "queue_name, task_name, state, priority, available_at, attempts, failures, crashes, max_attempts, payload, "
    "created_at, updated_at"
)


@pytest.fixture(scope="module", params=DATABASES)
def store(request: pytest.FixtureRequest, database_on_bench: Callable[[str], DatabaseOnBench]) -> Iterator[Bench]:
    """Copies of 200 jobs of two queues and three priorities; every other copy is sent."""
    database = database_on_bench(request.param)
    database.empty()
    store = Bench(database, Colour.SYNC)
    with left_alone(store):
        _fill(store)
        analyze(store)
        yield store
    database.empty()
    analyze(store)


def _fill(store: Bench) -> None:
    store.run(
        jobs.enqueue_many(
            [
                new_job(id=job_id, queue_name=QUEUES[place % 2], priority=place % 3, available_at=store.now - place)
                for place, job_id in enumerate(IDS)
            ]
        )
    )
    copies = SENT // len(IDS)
    copied = COPIED.replace("available_at", "available_at - number")
    # Tables of their own: read from the one it goes to, MariaDB would keep it all in a temporary one first.
    store.rows("create table samples as select * from stagepost_job")
    store.rows("create table copies (number integer primary key)")
    store.rows("insert into copies values " + ", ".join(f"({number})" for number in range(copies)))
    for sent_at in ("null", f"{store.now} - number"):
        store.rows(
            f"insert into stagepost_job (id, {COPIED}, sent_at) "
            f"select {NEW_ID[store.dialect.name]}, {copied}, {sent_at} from samples, copies"
        )
    for table in ("samples", "copies"):
        store.rows(f"drop table {table}")


FENCES = as_json([{"id": job_id, "attempt": 1} for job_id in IDS])
TAKING = {
    "queue_name": "mail",
    "deliveries": FENCES,
    "owner": "worker-a",
    "task_names": '["send_letter"]',
    "lease_us": 30_000_000,
    "suspect_crashes": 2,
    "slots": len(IDS),
}
CLAIMING = {
    "queue_name": "mail",
    "owner": "worker-a",
    "task_names": '["send_letter"]',
    "slots": 10,
    "lease_us": 30_000_000,
    "suspect_crashes": 2,
}
HOT = [
    (Statement("unsent_jobs", {"queue_name": "mail", "most": 1000}), "stagepost_job_claim"),
    (Statement("claim_jobs", CLAIMING), "stagepost_job_claim"),
    (Statement("sent_jobs", {"queue_name": "mail", "older_us": 0, "most": 5000}), "stagepost_job_sent"),
    (Statement("lost_jobs", {"queue_name": "mail", "sent_before": 2**62, "most": 5000}), "stagepost_job_sent"),
    (Statement("oldest_sent", {"queue_name": "mail"}), "stagepost_job_sent"),
    (Statement("oldest_queued", {"queue_name": "mail"}), "stagepost_job_claim"),
    (Statement("queued_tasks", {"queue_name": "mail", "older_us": 0, "most": 100}), "stagepost_job_sent"),
    (Statement("mark_sent", {"sent": FENCES, "read_at": 2**62}), "primary key"),
    (Statement("claim_delivered", TAKING), "primary key"),
    (Statement("find_delivered", {"ids": as_json(IDS)}), "primary key"),
    (
        Statement("put_back_jobs", {"ids": as_json(IDS), "delay_us": 0, "crashes": 0, "sent_before": 2**62}),
        "primary key",
    ),
]
NAMES = [statement.name for statement, _ in HOT]
IN_ORDER = {"unsent_jobs", "claim_jobs", "sent_jobs", "oldest_sent", "oldest_queued"}


def test_the_tables_are_as_large_as_the_plans_are_for(store: Bench) -> None:
    assert store.rows("select count(*) from stagepost_job where sent_at is not null") == [(SENT,)]
    assert store.rows("select count(*) from stagepost_job where sent_at is null") == [(SENT + len(IDS),)]


@pytest.mark.parametrize(("statement", "index"), HOT, ids=NAMES)
def test_no_statement_reads_or_sorts_more_than_it_needs(store: Bench, statement: Statement, index: str) -> None:
    plan = plan_of(store, statement, small_tables=False)

    assert not plan.read_whole & {"stagepost_job", "job"}, plan.text
    assert goes_through(index, plan, store), plan.text
    if statement.name in IN_ORDER:
        assert SORTS[store.dialect.name] not in plan.text, plan.text


@pytest.mark.parametrize("store", ["postgres"], indirect=True, scope="module")
@pytest.mark.parametrize(("statement", "index"), HOT, ids=NAMES)
def test_a_prepared_statement_does_neither_however_often_it_runs(
    store: Bench, statement: Statement, index: str
) -> None:
    """After five runs PostgreSQL may keep a plan that does not look at the parameters."""
    plan = kept_plan_of(store, statement)

    assert not plan.read_whole, plan.text
    assert goes_through(index, plan, store), plan.text
    if statement.name in IN_ORDER:
        assert SORTS["postgres"] not in plan.text, plan.text
