"""Operations inside callers' own transactions, on every kind of connection."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiosqlite
import msgspec
import pytest

from stagepost.clock import ManualClock
from stagepost.errors import ConfigurationError, NoTransaction
from stagepost.model.job import LeasedJob, OnConflict
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Failed, Outcome, Refused, Snoozed
from stagepost.store import Store, jobs, leases
from stagepost.store.migrate import migrate
from stagepost.store.settlement import Settlement
from stagepost.store.statement import Operation
from stagepost.store.transaction import ASYNC_ADAPTERS, SYNC_ADAPTERS, is_async, run_in, run_in_async
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.caller_kinds import KINDS, sqlite_path
from tests.conformance.callers import Kind, calling
from tests.conformance.samples import LEASE, QUEUE, TASK, claim, new_job, running, settle

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


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.has_odd_rows], ids=str)
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
        cancelled = caller.run(jobs.cancel(live.id, actor="ada"))
        caller.rollback()

    assert inside == outside
    assert (restarted, cancelled) == ([job.id], JobState.RUNNING)
    assert (leased.id, leased.attempt, leased.payload, leased.context) == (job.id, 2, job.payload, job.context)


def lookups(job: LeasedJob, live: LeasedJob) -> list[Operation[Any]]:
    return [
        jobs.get(job.id),
        jobs.get(live.id),
        jobs.failures_of(job.id),
        jobs.list_jobs(),
        leases.next_due(),
        leases.renew([(live.id, live.attempt)], owner=live.owner, lease=LEASE),
        leases.settle([Settlement.of(job, Completed())]),
    ]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.database != "sqlite"], ids=str)
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
            held += caller.run(leases.settle([change], ended_counts=False)).values()
            finish()

    assert held == [True, False]
    assert notes(store) == ["sent"]


def test_a_connection_of_the_other_colour_is_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    asynchronous = aiosqlite.connect(tmp_path / "file.db")  # never awaited, so never opened
    with closing(sqlite3.connect(tmp_path / "file.db")) as blocking:
        assert (is_async(asynchronous), is_async(blocking)) == (True, False)
        with pytest.raises(ConfigurationError, match=r"aiosqlite\.core\.Connection is asynchronous"):
            run_in(asynchronous, leases.next_due(), clock=clock)
        with pytest.raises(ConfigurationError, match=r"sqlite3\.Connection blocks"):
            asyncio.run(run_in_async(blocking, leases.next_due(), clock=clock))


@pytest.mark.parametrize("stranger", [None, "postgresql://localhost/app", object()], ids=["none", "url", "object"])
def test_anything_else_is_refused_with_a_list_of_what_is_known(stranger: object) -> None:
    with pytest.raises(ConfigurationError, match=r"is no connection.*asyncpg\.Connection.*sqlalchemy\.Session"):
        run_in(stranger, leases.next_due(), clock=ManualClock())


def test_a_cursor_is_refused(tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "file.db")) as connection,
        pytest.raises(ConfigurationError, match=r"sqlite3\.Cursor is no connection"),
    ):
        run_in(connection.cursor(), leases.next_due(), clock=ManualClock())


def test_a_subclass_of_a_known_connection_is_known(tmp_path: Path) -> None:
    class Traced(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(tmp_path / "file.db", factory=Traced)) as connection:
        assert is_async(connection) is False


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 got `autocommit` in Python 3.12")
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sqlite3", "aiosqlite"])
def test_the_newer_way_to_set_autocommit_is_understood(
    database_on_bench: Callable[[str], DatabaseOnBench], asynchronous: bool
) -> None:
    database = database_on_bench("sqlite")
    database.empty()
    store = Bench(database, Colour.SYNC)
    [kind] = [kind for kind in KINDS if kind.name == ("aiosqlite" if asynchronous else "sqlite3")]
    connect: Callable[..., Any] = aiosqlite.connect if asynchronous else sqlite3.connect
    kept, lost = new_job(), new_job()

    with calling(
        replace(kind, open=lambda url: connect(sqlite_path(url), autocommit=False)), store.url, store.clock
    ) as caller:
        caller.run(jobs.enqueue(kept))
        caller.commit()
        caller.run(jobs.enqueue(lost))
        caller.rollback()
    with (
        calling(
            replace(kind, open=lambda url: connect(sqlite_path(url), autocommit=True)), store.url, store.clock
        ) as caller,
        pytest.raises(NoTransaction),
    ):
        caller.run(jobs.enqueue(lost))

    assert [job.id for job in store.run(jobs.list_jobs())] == [kept.id]


def test_djangos_own_connection_is_known() -> None:
    from django.db import connection

    assert is_async(connection) is False


def test_no_driver_is_imported_to_recognise_a_connection() -> None:
    program = "import sys, stagepost.store.transaction; print(*sys.modules, sep='\\n')"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    imported = set(done.stdout.split())
    assert not imported & {package for package, _ in SYNC_ADAPTERS | ASYNC_ADAPTERS if package != "sqlite3"}


@pytest.mark.parametrize(
    "setting",
    [
        "set names utf8mb4 collate utf8mb4_unicode_ci",
        "set sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
        "set sql_mode = ''",
        "set time_zone = '+05:30'",
        "set session transaction isolation level serializable",
    ],
)
def test_callers_settings_of_mysql_change_nothing(
    database_on_bench: Callable[[str], DatabaseOnBench], setting: str
) -> None:
    database = database_on_bench("mariadb")
    database.empty()
    store = Bench(database, Colour.SYNC)
    payload = msgspec.json.encode({"text": "Grüße 🚚 \" ' \\ \n"}).decode()
    job = new_job(payload=payload, unique_key="Müller")
    [kind] = [kind for kind in KINDS if kind.name == "pymysql"]
    with calling(kind, store.url, store.clock) as caller:
        caller.execute(setting)
        caller.run(jobs.enqueue(job))
        again = caller.run(jobs.enqueue(new_job(unique_key="müller")))
        same = caller.run(jobs.enqueue(new_job(unique_key="Müller")))
        caller.commit()

    assert (again.is_new, same.id) == (True, job.id)
    assert store.run(jobs.get(job.id)).payload == payload


def test_a_mysql_database_with_another_character_set_keeps_every_character(mariadb_database: str) -> None:
    store = Store.at(mariadb_database)
    name = mariadb_database.rpartition("/")[2]
    with store.transaction() as connection:
        connection.execute(f"alter database {name} character set latin1", {})
    migrate(store)
    job = new_job(payload='{"text":"世界 🚚"}', unique_key="世界", queue_name="郵便", task_name="送る")

    store.run(jobs.enqueue(job))
    other = store.run(jobs.enqueue(new_job(unique_key="世間")))
    [leased] = store.run(leases.claim("郵便", owner="配達人", task_names=["送る"], slots=9, lease=LEASE))
    store.run(leases.settle([Settlement.of(leased, Refused("紙がない", "🚚"))]))

    assert other.is_new
    ended = store.run(jobs.get(job.id))
    assert (ended.payload, ended.error, ended.locked_by) == (job.payload, "紙がない", "配達人")
    assert [failure.traceback for failure in store.run(jobs.failures_of(job.id))] == ["🚚"]
    store.close()


def test_a_caller_with_serializable_transactions_is_served(
    database_on_bench: Callable[[str], DatabaseOnBench],
) -> None:
    database = database_on_bench("postgres")
    database.empty()
    store = Bench(database, Colour.SYNC)
    job = new_job()
    [kind] = [kind for kind in KINDS if kind.name == "psycopg"]
    with calling(kind, store.url, store.clock) as caller:
        caller.execute("set transaction isolation level serializable")
        caller.run(jobs.enqueue(job))
        caller.commit()

    assert store.run(jobs.get(job.id)).state is JobState.QUEUED
