"""Operations inside callers' own transactions, on every kind of connection."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from stagepost.database.statement import Operation, Rows, Statement, Statements, operation
from stagepost.errors import NoTransaction
from stagepost.model.job import LeasedJob, OnConflict
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Failed, Outcome, Refused, Snoozed
from stagepost.store import cancelling, jobs, leases, settling
from stagepost.store.listing import list_jobs
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.caller_kinds import each_kind, every_kind, sqlite_path
from tests.conformance.callers import Kind, calling
from tests.conformance.counts import kept
from tests.conformance.samples import LEASE, QUEUE, TASK, claim, new_job, running, settle


@pytest.fixture
def store(callers_store: Bench) -> Bench:
    return callers_store


def notes(store: Bench) -> list[str]:
    return [note for (note,) in store.rows("select note from caller_note order by note")]


def settlement(job: LeasedJob, outcome: Outcome) -> list[Settlement]:
    return [Settlement.of(job, outcome)]


@every_kind
def test_a_commit_keeps_the_job_and_the_callers_row(kind: Kind, store: Bench) -> None:
    job = new_job()
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.write("paid")
        enqueued = caller.run(jobs.enqueue(job))
        caller.commit()

    assert (enqueued.id, enqueued.is_new) == (job.id, True)
    assert notes(store) == ["paid"]
    stored = store.run(jobs.get(job.id))
    assert (stored.state, stored.payload, stored.context) == (JobState.QUEUED, job.payload, job.context)


@every_kind
def test_a_request_that_is_repeated_is_counted_once(kind: Kind, store: Bench) -> None:
    """Drivers and frameworks set flags by which a database counts rows that it left alone as changed."""
    job, others = new_job(), [new_job(), new_job(delay_us=5)]
    with calling(kind, store.url, store.clock) as caller:
        for _ in range(2):
            caller.begin()
            caller.run(jobs.enqueue(job))
            caller.run(jobs.enqueue_many(others))
            caller.commit()

    assert kept(store) == {job.queue_name: {JobState.QUEUED: 2, JobState.SCHEDULED: 1}}


@every_kind
def test_a_rollback_leaves_neither(kind: Kind, store: Bench) -> None:
    job = new_job()
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.run(jobs.enqueue(job))
        caller.write("paid")
        caller.rollback()

    assert notes(store) == []
    assert store.run(jobs.find(job.id)) is None


@every_kind
def test_an_operation_that_comes_first_opens_the_callers_transaction(kind: Kind, store: Bench) -> None:
    job = new_job()
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.run(jobs.enqueue(job))

        assert store.rows("select count(*) from stagepost_job") == [(0,)]
        caller.commit()

    assert store.rows("select count(*) from stagepost_job") == [(1,)]


@each_kind(lambda kind: kind.database == "sqlite" and kind.name != "django")
def test_rows_that_an_operation_reads_on_sqlite_do_not_change_before_it_writes(kind: Kind, store: Bench) -> None:
    """By itself the driver opens a transaction at the first write, and another process may come in between."""
    job_id = store.run(jobs.enqueue(new_job())).id

    @operation
    def read_before_writing() -> Statements[Rows]:
        return (yield Statement("lock_job", {"id": job_id}))

    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.run(read_before_writing())

        with pytest.raises(sqlite3.OperationalError, match="locked"), closing(impatient(store.url)) as other:
            other.execute("delete from stagepost_job")
        caller.rollback()


@each_kind(lambda kind: kind.database == "sqlite")
def test_a_query_on_sqlite_does_not_block_writers(kind: Kind, store: Bench) -> None:
    job_id = store.run(jobs.enqueue(new_job())).id
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.run(jobs.get(job_id))

        with closing(impatient(store.url)) as other:
            other.execute("update stagepost_job set priority = 3")
        caller.rollback()

    assert store.run(jobs.get(job_id)).priority == 3


def impatient(url: str) -> sqlite3.Connection:
    """Another process's connection, which does not wait for locks."""
    return sqlite3.connect(sqlite_path(url), timeout=0, isolation_level=None)


@every_kind
def test_a_job_completes_with_the_callers_row(kind: Kind, store: Bench) -> None:
    store.run(jobs.enqueue(new_job()))
    [job] = claim(store)
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.write("sent")
        held = caller.run(settling.settle(settlement(job, Completed('{"sent":1}'))))
        caller.commit()

    assert held == {(job.id, job.attempt): True}
    assert notes(store) == ["sent"]
    ended = store.run(jobs.get(job.id))
    assert (ended.state, ended.result) == (JobState.COMPLETED, '{"sent":1}')


@every_kind
def test_a_completion_rolled_back_leaves_the_job_running(kind: Kind, store: Bench) -> None:
    store.run(jobs.enqueue(new_job()))
    [job] = claim(store)
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.write("sent")
        caller.run(settling.settle(settlement(job, Completed())))
        caller.rollback()

    assert notes(store) == []
    assert store.run(jobs.get(job.id)).state is JobState.RUNNING


@every_kind
def test_an_attempt_that_lost_its_lease_gets_an_error(kind: Kind, store: Bench) -> None:
    store.run(jobs.enqueue(new_job()))
    [old] = claim(store)
    store.clock.advance(LEASE + timedelta(seconds=1))
    store.run(leases.rescue_expired(grace=timedelta(0)))
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        held = caller.run(settling.settle(settlement(old, Completed())))
        caller.rollback()

    assert held == {(old.id, old.attempt): False}
    assert store.run(jobs.get(old.id)).state is JobState.QUEUED


@every_kind
def test_a_job_fails_in_the_callers_transaction(kind: Kind, store: Bench) -> None:
    store.run(jobs.enqueue(new_job()))
    [job] = claim(store)
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.run(settling.settle(settlement(job, Failed("no paper", timedelta(seconds=5), "line 1"))))
        caller.commit()

    assert store.run(jobs.get(job.id)).state is JobState.RETRYING
    [failure] = store.run(jobs.failures_of(job.id))
    assert (failure.attempt, failure.kind, failure.error) == (1, "failed", "no paper")


@every_kind
def test_a_job_is_snoozed_in_the_callers_transaction(kind: Kind, store: Bench) -> None:
    store.run(jobs.enqueue(new_job()))
    [job] = claim(store)
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.run(settling.settle(settlement(job, Snoozed(timedelta(hours=2)))))
        caller.commit()

    snoozed = store.run(jobs.get(job.id))
    assert (snoozed.state, snoozed.available_at) == (JobState.SCHEDULED, store.now + 7_200_000_000)


@every_kind
def test_without_a_transaction_nothing_is_written(kind: Kind, store: Bench) -> None:
    job = new_job()
    with (
        calling(kind, store.url, store.clock, autocommit=True) as caller,
        pytest.raises(NoTransaction, match="no open transaction"),
    ):
        caller.run(jobs.enqueue(job))

    assert store.run(jobs.find(job.id)) is None


@each_kind(lambda kind: kind.takes_begin)
def test_autocommit_is_allowed_once_a_transaction_is_open(kind: Kind, store: Bench) -> None:
    job = new_job()
    with calling(kind, store.url, store.clock, autocommit=True) as caller:
        caller.execute("begin")
        caller.run(jobs.enqueue(job))
        caller.execute("rollback")

    assert store.run(jobs.find(job.id)) is None


@each_kind(lambda kind: kind.has_odd_rows)
def test_other_shapes_of_rows_change_nothing(kind: Kind, store: Bench) -> None:
    first, second = new_job(unique_key="letter:1"), new_job(unique_key="letter:1")
    with calling(kind, store.url, store.clock, odd_rows=True) as caller:
        caller.begin()
        enqueued = caller.run(jobs.enqueue_many([first, second]))
        found = caller.run(jobs.get(first.id))
        replaced = caller.run(jobs.enqueue(new_job(unique_key="letter:1", on_conflict=OnConflict.REPLACE)))
        caller.commit()

    assert [one.id for one in enqueued] == [first.id, first.id]
    assert (found.id, found.payload, found.context) == (first.id, first.payload, first.context)
    assert replaced.id == first.id


@every_kind
def test_what_operations_return_does_not_depend_on_the_connection(kind: Kind, store: Bench) -> None:
    job = running(store, max_attempts=1)
    settle(store, job, Refused("no such letter", "line 1"))
    live = running(store, unique_key="letter:1")
    outside = [store.run(operation) for operation in lookups(job, live)]
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        inside = [caller.run(operation) for operation in lookups(job, live)]
        restarted = caller.run(jobs.restart([job.id], actor="ada"))
        [leased] = caller.run(leases.claim(QUEUE, owner="worker-b", task_names=[TASK], slots=1, lease=LEASE))
        cancelled = caller.run(cancelling.cancel_job(live.id, actor="ada"))
        caller.rollback()

    assert inside == outside
    assert (restarted, cancelled) == ([job.id], JobState.RUNNING)
    assert (leased.id, leased.attempt, leased.payload, leased.context) == (job.id, 2, job.payload, job.context)


def lookups(job: LeasedJob, live: LeasedJob) -> list[Operation[Any]]:
    return [
        jobs.get(job.id),
        jobs.get(live.id),
        jobs.failures_of(job.id),
        list_jobs(),
        leases.next_due(),
        leases.renew([(live.id, live.attempt)], owner=live.owner, lease=LEASE),
        settling.settle([Settlement.of(job, Completed())]),
    ]


@each_kind(lambda kind: kind.database != "sqlite")
@pytest.mark.parametrize("unique_for_us", [None, 1_000_000], ids=["while-alive", "for-a-period"])
def test_a_unique_key_taken_after_the_caller_began_is_seen(kind: Kind, store: Bench, unique_for_us: int | None) -> None:
    key = {"unique_key": "letter:1", "unique_for_us": unique_for_us}
    holder = new_job(**key)
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.read()  # a MySQL transaction sees from here on what was committed before, unless it locks
        store.run(jobs.enqueue(holder))

        enqueued = caller.run(jobs.enqueue(new_job(**key)))
        caller.commit()

    assert (enqueued.id, enqueued.is_new) == (holder.id, False)


@every_kind
def test_a_unique_key_taken_before_is_seen(kind: Kind, store: Bench) -> None:
    holder = new_job(unique_key="letter:1")
    store.run(jobs.enqueue(holder))
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        enqueued = caller.run(jobs.enqueue(new_job(unique_key="letter:1")))
        caller.commit()

    assert (enqueued.id, enqueued.is_new) == (holder.id, False)


@every_kind
def test_a_transaction_repeated_after_its_commit_is_refused(kind: Kind, store: Bench) -> None:
    """The reply to the first commit was lost: what the caller writes beside the settlement must not stay twice."""
    job = running(store)
    held: list[bool] = []
    with calling(kind, store.url, store.clock) as caller:
        for finish in (caller.commit, caller.rollback):
            caller.begin()
            caller.write("sent")
            change = Settlement.of(job, Completed())
            held += caller.run(settling.settle([change], ended_counts=False)).values()
            finish()

    assert held == [True, False]
    assert notes(store) == ["sent"]
