"""How the hot statements are run on large tables: through their index, without sorting or reading it all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stagepost.database.statement import Statement, as_json
from stagepost.model.batch import id_range
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.store import jobs
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.plans import SORTS, analyze, copy_to_history, goes_through, kept_plan_of, left_alone, plan_of
from tests.conformance.samples import new_job
from tests.depth import DATABASES

ROWS = 20_000
QUEUES = ("mail", "print", "fax", "pigeon")
IDS = [new_id() for _ in range(100)]


@pytest.fixture(scope="module", params=DATABASES)
def store(request: pytest.FixtureRequest, database_on_bench: Callable[[str], DatabaseOnBench]) -> Iterator[Bench]:
    """20,000 live jobs, most of them queued, a tenth in each other state, and as many ended ones."""
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
    for start in range(0, ROWS, 5000):
        store.run(jobs.enqueue_many([_job(store, number) for number in range(start, start + 5000)]))
    _put_aside(store, "retrying", every=50, number=1)
    _put_aside(store, "running", every=10, number=2)
    copy_to_history(store)


def _job(store: Bench, number: int) -> NewJob:
    facts: dict[str, Any] = {
        "queue_name": QUEUES[number % 4],
        "priority": number // 10 % 5,
        "available_at": store.now - number,
    }
    if number % 10 == 3:
        facts |= {"available_at": store.now + number}  # scheduled
    elif number % 10 == 4:
        facts |= {"limit_key": f"printer-{number % 100}", "limit": 1}  # blocked
    elif number % 10 == 5:
        facts |= {"unique_key": f"letter:{number}"}
    return new_job(**facts, id=IDS[number] if number < len(IDS) else new_id())


def _put_aside(store: Bench, state: str, *, every: int, number: int) -> None:
    """Give every so-manieth job another state."""
    store.rows(
        "update stagepost_job set state = :state, attempts = 1, locked_by = :owner, "
        f"lease_until = {'available_at' if state == 'running' else 'null'} "
        "where state = 'queued' and unique_key is null and limit_key is null "
        f"and (:now - available_at) % {every} = :number",
        state=state,
        owner="worker-a" if state == "running" else None,
        number=number,
        now=store.now,
    )


CHANGES = as_json(
    [
        {"id": job_id, "attempt": 1, "owner": "worker-a", "state": "completed", "failures": 0, "crashes": 0}
        for job_id in IDS
    ]
)
NAMED = as_json([{"name": f"limit:printer-{number}", "limit_key": f"printer-{number}"} for number in (4, 14)])
HELD = as_json(
    [{"id": job_id, "attempt": 1, "blocked_on": "limit:a", "limit_key": "a", "due_at": None} for job_id in IDS]
)
LEASES = as_json([{"id": job_id, "attempt": 1} for job_id in IDS])
NOTHING_BEFORE = "ffffffff-ffff-ffff-ffff-ffffffffffff"
LISTING = {"before": NOTHING_BEFORE, "most": 50}
ALL = {**LISTING, "until": "00000000-0000-0000-0000-000000000000"}

HOT = [
    (
        Statement(
            "claim_jobs",
            {
                "queue_name": "mail",
                "owner": "worker-a",
                "task_names": '["send_letter"]',
                "slots": 10,
                "lease_us": 30_000_000,
                "suspect_crashes": 2,
            },
        ),
        "stagepost_job_claim",
    ),
    (Statement("end_jobs", {"changes": CHANGES}), "primary key"),
    (
        Statement(
            "end_jobs",
            {
                "changes": CHANGES,
                "ids": as_json(IDS),
                "like": as_json({"attempt": 1, "owner": "worker-a", "state": "completed"}),
            },
        ),
        "primary key",
    ),
    (Statement("reschedule_jobs", {"changes": CHANGES}), "primary key"),
    (Statement("find_stop_requests", {"leases": LEASES, "owner": "worker-a"}), "primary key"),
    (Statement("renew_leases", {"leases": LEASES, "owner": "worker-a", "lease_us": 30_000_000}), "primary key"),
    (Statement("promote_due_jobs", {"most": 100}), "stagepost_job_due"),
    (Statement("lock_expired_leases", {"grace_us": 0, "most": 100}), "stagepost_job_lease"),
    (Statement("lock_owned_jobs", {"owner": "worker-a"}), "stagepost_job_lease"),
    (Statement("next_due"), "stagepost_job_due"),
    (Statement("limit_usage", {"names": NAMED}), "stagepost_job_limit"),
    (Statement("limit_usage", {"names": NAMED}), "stagepost_job_blocked"),
    (Statement("blocked_jobs", {"name": "limit:printer-4", "most": 100}), "stagepost_job_blocked"),
    (Statement("blocked_names", {"after": "limit:printer-4", "most": 100}), "stagepost_job_blocked"),
    (Statement("blocked_tasks", {"name": "limit:printer-4", "most": 100}), "stagepost_job_blocked"),
    (Statement("front_jobs", {"queue_name": "mail", "most": 100, "keyed": '["send_letter"]'}), "stagepost_job_claim"),
    (Statement("hold_jobs", {"jobs": HELD, "owner": "worker-a"}), "primary key"),
    (Statement("write_limit_keys", {"jobs": HELD, "owner": "worker-a"}), "primary key|stagepost_job_lease"),
    (Statement("let_through_jobs", {"jobs": HELD, "forgets": 0}), "primary key"),
    (Statement("find_enqueued", {"jobs": CHANGES}), "stagepost_job_unique_key|primary key"),
    (Statement("live_job", {"id": IDS[0]}), "primary key"),
    (Statement("ended_job", {"id": IDS[0]}), "primary key"),
    (Statement("list_live_jobs", {**ALL, "queue_name": "fax", "states": '["queued"]'}), "primary key"),
    (Statement("list_ended_jobs", {**ALL, "queue_name": "fax", "states": '["completed"]'}), "primary key"),
    (Statement("list_few_live_jobs", {**LISTING, "state": "running", "running": 1}), "stagepost_job_(lease|claim)"),
    (Statement("list_few_live_jobs", {**LISTING, "state": "retrying", "due": "retrying"}), "stagepost_job_(due|claim)"),
    (Statement("list_few_live_jobs", {**LISTING, "state": "blocked", "blocked": 1}), "stagepost_job_(blocked|claim)"),
    (Statement("list_few_live_jobs", {**LISTING, "state": "queued", "sent": 1}), "stagepost_job_(sent|claim)"),
    (Statement("list_few_ended_jobs", {**LISTING, "state": "failed"}), "stagepost_job_history_ended"),
    (Statement("look_until_live", {"before": NOTHING_BEFORE, "look": 100}), "primary key"),
    (Statement("look_until_ended", {"before": NOTHING_BEFORE, "look": 100}), "primary key"),
    (Statement("count_queues"), "stagepost_job_(lease|claim)"),
    (Statement("oldest_queued", {"queue_name": "fax"}), "stagepost_job_claim"),
    (Statement("oldest_queued", {"queue_name": "fax", "below": 3}), "stagepost_job_claim"),
    (Statement("queued_tasks", {"queue_name": "fax", "older_us": 0, "most": 100}), "stagepost_job_claim"),
]
BATCH = {"batch_id": IDS[0], "first_id": id_range(IDS[0])[0], "last_id": id_range(IDS[0])[1]}
PAGE_OF_BATCH = {**BATCH, "after": BATCH["first_id"], "most": 100}
HOT += [
    (Statement("known_jobs", {"ids": as_json(IDS)}), "primary key"),
    (Statement("jobs_between", {"first_id": IDS[0], "last_id": IDS[-1], "most": 500}), "primary key"),
    (Statement("lock_live_items", PAGE_OF_BATCH), "primary key"),
    (Statement("stop_running_items", BATCH), "primary key|stagepost_job_lease"),
    (Statement("failed_items", PAGE_OF_BATCH), "primary key|stagepost_job_history_ended"),
    (Statement("group_failed_items", {**BATCH, "most": 100}), "primary key|stagepost_job_history_ended"),
    (Statement("count_batch", {"scope": f"batch:{IDS[0]}", "running_of": IDS[0]}), "stagepost_job_(lease|claim)"),
]
NAMES = [statement.name for statement, _ in HOT]


@pytest.mark.parametrize(("statement", "index"), HOT, ids=NAMES)
def test_a_hot_statement_goes_through_its_index(store: Bench, statement: Statement, index: str) -> None:
    plan = plan_of(store, statement, small_tables=False)

    assert not plan.read_whole & {"stagepost_job", "stagepost_job_history", "job", "ended"}, plan.text
    assert goes_through(index, plan, store), plan.text


@pytest.mark.parametrize(
    "name", ["claim_jobs", "front_jobs", "lock_expired_leases", "list_live_jobs", "list_ended_jobs"]
)
def test_rows_read_in_order_are_not_sorted(store: Bench, name: str) -> None:
    [statement] = [statement for statement, _ in HOT if statement.name == name]

    plan = plan_of(store, statement, small_tables=False)

    assert SORTS[store.dialect.name] not in plan.text, plan.text


@pytest.mark.parametrize("store", ["postgres"], indirect=True, scope="module")
@pytest.mark.parametrize(("statement", "index"), HOT, ids=NAMES)
def test_a_prepared_statement_goes_through_its_index_however_often_it_runs(
    store: Bench, statement: Statement, index: str
) -> None:
    """After five runs PostgreSQL may keep a plan that does not look at the parameters."""
    plan = kept_plan_of(store, statement)

    assert not plan.read_whole, plan.text
    assert goes_through(index, plan, store), plan.text
