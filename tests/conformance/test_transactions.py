"""Operations inside callers' own transactions, on every kind of connection."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from stagepost.errors import NoTransaction
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Failed, Outcome, Snoozed
from stagepost.store import jobs, leases
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.caller_kinds import KINDS
from tests.conformance.callers import Kind, calling
from tests.conformance.samples import LEASE, claim, new_job

every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def store(kind: Kind, database_on_bench: Callable[[str], DatabaseOnBench]) -> Bench:
    """The kind's database, seen from outside the caller's transaction."""
    database = database_on_bench(kind.database)
    store = Bench(database, Colour.SYNC)
    store.rows("create table if not exists caller_note (note varchar(100))")
    store.rows("delete from caller_note")
    database.empty()
    return store


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


@every_kind
def test_a_job_completes_with_the_callers_row(kind: Kind, store: Bench) -> None:
    store.run(jobs.enqueue(new_job()))
    [job] = claim(store)
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.write("sent")
        held = caller.run(leases.settle(settlement(job, Completed('{"sent":1}'))))
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
        caller.run(leases.settle(settlement(job, Completed())))
        caller.rollback()

    assert notes(store) == []
    assert store.run(jobs.get(job.id)).state is JobState.RUNNING


@every_kind
def test_an_attempt_that_lost_its_lease_is_told_so(kind: Kind, store: Bench) -> None:
    store.run(jobs.enqueue(new_job()))
    [old] = claim(store)
    store.clock.advance(LEASE + timedelta(seconds=1))
    store.run(leases.rescue_expired(grace=timedelta(0)))
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        held = caller.run(leases.settle(settlement(old, Completed())))
        caller.rollback()

    assert held == {(old.id, old.attempt): False}
    assert store.run(jobs.get(old.id)).state is JobState.QUEUED


@every_kind
def test_a_job_fails_in_the_callers_transaction(kind: Kind, store: Bench) -> None:
    store.run(jobs.enqueue(new_job()))
    [job] = claim(store)
    with calling(kind, store.url, store.clock) as caller:
        caller.begin()
        caller.run(leases.settle(settlement(job, Failed("no paper", timedelta(seconds=5), "line 1"))))
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
        caller.run(leases.settle(settlement(job, Snoozed(timedelta(hours=2)))))
        caller.commit()

    snoozed = store.run(jobs.get(job.id))
    assert (snoozed.state, snoozed.available_at) == (JobState.SCHEDULED, store.now + 7_200_000_000)


@every_kind
def test_without_a_transaction_nothing_is_written(kind: Kind, store: Bench) -> None:
    job = new_job()
    with (
        calling(kind, store.url, store.clock, autocommit=True) as caller,
        pytest.raises(NoTransaction, match="no transaction open"),
    ):
        caller.run(jobs.enqueue(job))

    assert store.run(jobs.find(job.id)) is None


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.takes_begin], ids=str)
def test_autocommit_is_fine_once_a_transaction_is_begun(kind: Kind, store: Bench) -> None:
    job = new_job()
    with calling(kind, store.url, store.clock, autocommit=True) as caller:
        caller.execute("begin")
        caller.run(jobs.enqueue(job))
        caller.execute("rollback")

    assert store.run(jobs.find(job.id)) is None
