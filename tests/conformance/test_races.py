"""Two or more real connections at once: every job goes to exactly one of them.

Each test runs several rounds, because a race that is lost once in a while is lost.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from stagepost.database.dialect import arranged
from stagepost.database.statement import Operation, as_json
from stagepost.errors import IllegalTransition, UniqueKeyTaken
from stagepost.model.job import microseconds
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Failed, Refused
from stagepost.store import cancelling, jobs, leases, settling
from stagepost.store.listing import list_jobs
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, QUEUE, TASK, claim, enqueue, fence, new_job, running, settle
from tests.limits import unblock
from tests.services.processes import wait_until

ROUNDS = 12
RACERS = 4
ADVISED = (
    "select count(*) from pg_locks where locktype = 'advisory' and not granted "
    "and database = (select oid from pg_database where datname = current_database())"
)
"""How many wait for such a lock; other runs on the same server, which may migrate, do not count."""


@pytest.fixture(params=range(2), ids=["", "reversed"])
def order(request: pytest.FixtureRequest) -> int:
    """Who comes first in line; the first has a small advantage."""
    return 1 - 2 * int(request.param)


@pytest.fixture
def store(blocking_store: Bench) -> Bench:
    return blocking_store


def expire(store: Bench) -> None:
    store.clock.advance(LEASE + timedelta(seconds=1))


def test_a_job_that_is_changed_between_being_seen_and_being_locked_is_claimed_next(store: Bench) -> None:
    """Its claim finds rows again by where they lie, and one that was changed lies elsewhere."""
    if store.dialect.name != "postgres":
        pytest.skip("only PostgreSQL's claim looks twice in one statement")
    first, second = enqueue(store), enqueue(store)
    database = store.database.store.database
    claimer, keeper = database.connect(), database.connect()
    given = {
        "queue_name": QUEUE,
        "owner": "w",
        "task_names": as_json([TASK]),
        "slots": 2,
        "lease_us": 1,
        "suspect_crashes": 2,
        "now": store.now,
    }
    [text] = store.dialect.script("claim_jobs", database.style, own_clock=True).texts
    waiting = "where (select pg_advisory_xact_lock(7)) is not null and state = 'queued'"
    keeper.begin()
    keeper.execute("select pg_advisory_xact_lock(7)", {})

    with ThreadPoolExecutor(1) as thread:
        sql = text.sql.replace("where state = 'queued'", waiting, 1)
        claiming = thread.submit(claimer.execute, sql, arranged(text, given, database.style))
        wait_until(
            lambda: store.rows(ADVISED) == [(1,)],
            "a claim that has begun",
            seconds=60,
        )
        store.edit("update stagepost_job set payload = '{}' where id = :id", id=second)
        keeper.rollback()
        claimed = claiming.result(timeout=60)
    claimer.close()
    keeper.close()

    assert [str(row[0]) for row in claimed] == [first]
    assert [(job.id, job.payload) for job in claim(store, slots=2)] == [(second, "{}")]


def test_each_job_is_claimed_once(store: Bench) -> None:
    ids = {enqueue(store, priority=number % 3) for number in range(60)}
    claimed: list[str] = []

    while len(claimed) < len(ids):
        shares = store.race(
            *(
                leases.claim(QUEUE, owner=f"worker-{racer}", task_names=[TASK], slots=4, lease=LEASE)
                for racer in range(RACERS)
            )
        )
        claimed += [job.id for share in shares for job in share]
        assert any(shares), "jobs are left, and nobody gets one"

    assert Counter(claimed) == Counter(ids)
    assert store.rows("select count(*) from stagepost_job where attempts = 1 and state = 'running'") == [(60,)]


def test_each_due_job_is_promoted_once(store: Bench) -> None:
    store.run(jobs.enqueue_many([new_job(delay_us=1 + number) for number in range(60)]))
    store.clock.advance(1)
    promoted = 0

    # More than one round: MariaDB locks all due jobs while it sorts them, so others may find none.
    while promoted < 60:
        counts = store.race(*(leases.promote_due(most=40) for _ in range(RACERS)))
        promoted += sum(counts)
        assert any(counts), "jobs are due, and nobody promotes one"

    assert promoted == 60


def test_each_expired_lease_is_rescued_once(store: Bench) -> None:
    store.run(jobs.enqueue_many([new_job() for _ in range(60)]))
    ids = {job.id for job in claim(store, slots=60)}
    expire(store)
    rescued: list[str] = []

    while len(rescued) < 60:
        parts = store.race(*(leases.rescue_expired(grace=timedelta(0), most=20) for _ in range(RACERS)))
        rescued += [job_id for part in parts for job_id in part.queued]
        assert any(part.queued for part in parts), "leases have expired, and nobody rescues one"

    assert Counter(rescued) == Counter(ids)
    assert store.rows("select count(*) from stagepost_job where crashes = 1") == [(60,)]


def test_a_limit_is_never_exceeded(store: Bench) -> None:
    for _ in range(ROUNDS):
        store.edit("delete from stagepost_job")
        store.run(jobs.enqueue_many([new_job(limit_key="printer", limit=3) for _ in range(6)]))

        through = store.race(*(unblock() for _ in range(RACERS)))

        assert sum(through) == 3
        assert len(store.run(list_jobs(states=[JobState.QUEUED]))) == 3


def test_an_expired_attempt_is_either_settled_or_rescued(store: Bench, order: int) -> None:
    for _ in range(ROUNDS):
        job = running(store, queue_name=QUEUE)
        expire(store)

        pair: list[Operation[Any]] = [
            settling.settle([Settlement.of(job, Completed())]),
            leases.rescue_expired(grace=timedelta(0)),
        ]
        held, rescued = store.race(*pair[::order])[::order]

        won = held[fence(job)]
        assert (rescued.queued == ()) is won
        state = store.run(jobs.get(job.id)).state
        assert state is (JobState.COMPLETED if won else JobState.QUEUED)
        assert len(store.run(jobs.failures_of(job.id))) == (not won)
        if not won:
            store.run(cancelling.cancel_job(job.id, actor="ada"))


def test_an_expired_lease_is_either_renewed_or_rescued(store: Bench, order: int) -> None:
    for _ in range(ROUNDS):
        job = running(store)
        expire(store)

        pair: list[Operation[Any]] = [
            leases.renew([fence(job)], owner=job.owner, lease=LEASE),
            leases.rescue_expired(grace=timedelta(0)),
        ]
        renewed, rescued = store.race(*pair[::order])[::order]

        assert bool(renewed.held) is not bool(rescued.queued)
        state = store.run(jobs.get(job.id)).state
        assert state is (JobState.RUNNING if renewed.held else JobState.QUEUED)
        store.edit("delete from stagepost_job")


def test_two_settlements_of_one_attempt_write_one_end(store: Bench, order: int) -> None:
    for _ in range(ROUNDS):
        job = running(store)

        pair: list[Operation[Any]] = [
            settling.settle([Settlement.of(job, Completed('{"first":1}'))]),
            settling.settle([Settlement.of(job, Refused("second"))]),
        ]
        store.race(*pair[::order])

        ended = store.run(jobs.get(job.id))
        completed = ended.state is JobState.COMPLETED
        assert (ended.result, ended.error) == (('{"first":1}', None) if completed else (None, "second"))
        assert len(store.run(jobs.failures_of(job.id))) == (not completed)


@pytest.mark.parametrize("unique_for", [None, timedelta(hours=1)], ids=["while-alive", "for-a-period"])
def test_one_unique_key_makes_one_job(store: Bench, unique_for: timedelta | None) -> None:
    for number in range(ROUNDS):
        key = {"unique_key": f"letter:{number}", "unique_for_us": unique_for and microseconds(unique_for)}

        enqueued = store.race(*(jobs.enqueue(new_job(**key)) for _ in range(RACERS)))

        assert len({one.id for one in enqueued}) == 1
        assert [one.is_new for one in enqueued].count(True) == 1
    assert store.rows("select count(*) from stagepost_job") == [(ROUNDS,)]


@pytest.mark.parametrize("unique_for", [None, timedelta(hours=1)], ids=["while-alive", "for-a-period"])
def test_unique_keys_taken_in_opposite_order_do_not_deadlock(store: Bench, unique_for: timedelta | None) -> None:
    retries = store.database.retries
    for batch in range(5):
        keys = [
            {"unique_key": f"letter:{batch}:{number}", "unique_for_us": unique_for and microseconds(unique_for)}
            for number in range(40)
        ]

        there, back = store.race(
            jobs.enqueue_many([new_job(**key) for key in keys]),
            jobs.enqueue_many([new_job(**key) for key in reversed(keys)]),
        )

        assert [one.id for one in there] == [one.id for one in reversed(back)]
    assert store.rows("select count(*) from stagepost_job") == [(200,)]
    assert store.database.retries == retries


def test_a_job_is_restarted_once(store: Bench) -> None:
    for _ in range(ROUNDS):
        job = running(store)
        settle(store, job, Refused("no such letter"))

        restarted = store.race(*(jobs.restart([job.id], actor=f"ada-{racer}") for racer in range(RACERS)))

        assert sorted(restarted) == [[]] * (RACERS - 1) + [[job.id]]
        assert store.rows("select count(*) from stagepost_audit where subject = :id", id=job.id) == [(1,)]
        store.run(cancelling.cancel_job(job.id, actor="ada"))


def test_a_restarted_job_and_a_new_one_never_share_a_unique_key(store: Bench, order: int) -> None:
    for number in range(ROUNDS):
        key = f"letter:{number}"
        job = running(store, unique_key=key)
        settle(store, job, Refused("no such letter"))

        pair: list[Operation[Any]] = [jobs.restart([job.id], actor="ada"), jobs.enqueue(new_job(unique_key=key))]
        restarted, enqueued = store.race_to_end(*pair[::order])[::order]

        [(holder,)] = store.rows("select id from stagepost_job where unique_key = :key", key=key)
        if isinstance(restarted, UniqueKeyTaken):
            assert enqueued.id == holder != job.id
            assert store.run(jobs.get(job.id)).state is JobState.FAILED
        else:
            assert (restarted, enqueued.id, holder) == ([job.id], job.id, job.id)
        store.run(cancelling.cancel_job(holder, actor="ada"))


def test_a_job_is_either_cancelled_before_it_runs_or_asked_to_stop(store: Bench, order: int) -> None:
    for _ in range(ROUNDS):
        job_id = enqueue(store)

        pair: list[Operation[Any]] = [
            cancelling.cancel_job(job_id, actor="ada"),
            leases.claim(QUEUE, owner="worker-a", task_names=[TASK], slots=1, lease=LEASE),
        ]
        state, claimed = store.race_to_end(*pair[::order])[::order]

        job = store.run(jobs.get(job_id))
        assert job.state is state
        assert [leased.id for leased in claimed] == ([job_id] if state is JobState.RUNNING else [])
        assert (job.cancel_requested_at is not None) is (state is JobState.RUNNING)


def test_a_job_that_is_cancelled_while_it_fails_never_runs_again(store: Bench, order: int) -> None:
    for _ in range(ROUNDS):
        job = running(store)

        pair: list[Operation[Any]] = [
            cancelling.cancel_job(job.id, actor="ada"),
            settling.settle([Settlement.of(job, Failed("no paper", timedelta(0)))]),
        ]
        state, held = store.race_to_end(*pair[::order])[::order]

        assert held == {fence(job): True}
        assert state in {JobState.CANCELLED, JobState.RUNNING}
        assert store.run(jobs.get(job.id)).state is JobState.CANCELLED


def test_a_job_that_is_cancelled_while_it_completes_is_completed(store: Bench, order: int) -> None:
    for _ in range(ROUNDS):
        job = running(store)

        pair: list[Operation[Any]] = [
            cancelling.cancel_job(job.id, actor="ada"),
            settling.settle([Settlement.of(job, Completed())]),
        ]
        state, held = store.race_to_end(*pair[::order])[::order]

        assert held == {fence(job): True}
        assert state is JobState.RUNNING or isinstance(state, IllegalTransition)
        assert store.run(jobs.get(job.id)).state is JobState.COMPLETED


def test_renewing_does_not_wait_for_a_job_that_is_being_settled(store: Bench) -> None:
    if not store.database.store.dialect.has_row_locks:
        pytest.skip("with one writer at a time there are no rows to wait for")
    store.run(jobs.enqueue_many([new_job() for _ in range(3)]))
    held = claim(store, slots=3)
    fences = {fence(job) for job in held}
    [settler, renewer] = store.database.racers(2)
    store.clock.advance(10)

    with settler.transaction() as connection:
        settler.drive(settling.settle([Settlement.of(held[1], Completed())]), connection)
        renewed = renewer.run(leases.renew(sorted(fences), owner="worker-a", lease=LEASE), patience_seconds=0)

    assert renewed.held == fences
    assert renewer.run(leases.renew(sorted(fences), owner="worker-a", lease=LEASE)).held == fences - {fence(held[1])}
    assert store.rows("select distinct lease_until from stagepost_job") == [(store.now + 30_000_000,)]
