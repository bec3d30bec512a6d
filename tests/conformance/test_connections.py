"""What counts as a caller's connection, and what callers may have set on theirs."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiosqlite
import msgspec
import psycopg
import pytest
import sqlalchemy

from stagepost.database import Store, connection, session
from stagepost.database.migrate import migrate
from stagepost.database.transaction import ASYNC_ADAPTERS, SYNC_ADAPTERS, is_async, run_in, run_in_async
from stagepost.errors import ConfigurationError, NoTransaction, StoreUnavailable
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Refused
from stagepost.store import jobs, leases, settling
from stagepost.store.listing import list_jobs
from stagepost.store.settlement import Settlement
from stagepost.testing.clock import ManualClock
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.caller_kinds import KINDS, sqlite_path
from tests.conformance.callers import calling
from tests.conformance.samples import LEASE, new_job


def emptied(database: DatabaseOnBench) -> Bench:
    database.empty()
    return Bench(database, Colour.SYNC)


@pytest.fixture
def sqlite(database_on_bench: Callable[[str], DatabaseOnBench]) -> Bench:
    return emptied(database_on_bench("sqlite"))


@pytest.fixture
def postgres(database_on_bench: Callable[[str], DatabaseOnBench]) -> Bench:
    return emptied(database_on_bench("postgres"))


@pytest.fixture
def mariadb(database_on_bench: Callable[[str], DatabaseOnBench]) -> Bench:
    return emptied(database_on_bench("mariadb"))


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
def test_an_unknown_connection_is_refused_with_a_list_of_known_kinds(stranger: object) -> None:
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
def test_the_newer_way_to_set_autocommit_is_understood(sqlite: Bench, asynchronous: bool) -> None:
    [kind] = [kind for kind in KINDS if kind.name == ("aiosqlite" if asynchronous else "sqlite3")]
    connect: Callable[..., Any] = aiosqlite.connect if asynchronous else sqlite3.connect
    kept, lost = new_job(), new_job()

    with calling(
        replace(kind, open=lambda url: connect(sqlite_path(url), autocommit=False)), sqlite.url, sqlite.clock
    ) as caller:
        caller.run(jobs.enqueue(kept))
        caller.commit()
        caller.run(jobs.enqueue(lost))
        caller.rollback()
    with (
        calling(
            replace(kind, open=lambda url: connect(sqlite_path(url), autocommit=True)), sqlite.url, sqlite.clock
        ) as caller,
        pytest.raises(NoTransaction),
    ):
        caller.run(jobs.enqueue(lost))

    assert [job.id for job in sqlite.run(list_jobs())] == [kept.id]


def test_an_sqlalchemy_engine_that_begins_sqlites_transactions_itself_is_served(sqlite: Bench) -> None:
    """SQLAlchemy's own advice for SQLite: autocommit in the driver, and `begin` from an event."""
    engine = sqlalchemy.create_engine(sqlite.url)
    sqlalchemy.event.listen(engine, "connect", lambda raw, _record: setattr(raw, "isolation_level", None))
    sqlalchemy.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("begin"))
    kept, lost = new_job(), new_job()

    with engine.begin() as tx:
        run_in(tx, jobs.enqueue(kept), clock=sqlite.clock)
    with engine.connect() as tx:
        run_in(tx, jobs.enqueue(lost), clock=sqlite.clock)
        tx.rollback()
    engine.dispose()

    assert [job.id for job in sqlite.run(list_jobs())] == [kept.id]


def test_a_savepoint_of_the_callers_takes_the_job_with_it(postgres: Bench) -> None:
    kept, lost = new_job(), new_job()

    with psycopg.connect(postgres.url, autocommit=True) as tx, tx.transaction():
        run_in(tx, jobs.enqueue(kept), clock=postgres.clock)
        with tx.transaction(force_rollback=True):
            run_in(tx, jobs.enqueue(lost), clock=postgres.clock)

    assert [job.id for job in postgres.run(list_jobs())] == [kept.id]


def test_a_pipeline_of_psycopgs_is_served(postgres: Bench) -> None:
    first, second = new_job(), new_job()

    with psycopg.connect(postgres.url, autocommit=True) as tx:
        with tx.transaction(), tx.pipeline():
            assert run_in(tx, jobs.enqueue(first), clock=postgres.clock).is_new
        with tx.pipeline(), tx.transaction():
            assert run_in(tx, jobs.get(first.id), clock=postgres.clock).id == first.id
            assert run_in(tx, jobs.enqueue(second), clock=postgres.clock).is_new
        with tx.pipeline(), pytest.raises(NoTransaction):
            run_in(tx, jobs.enqueue(new_job()), clock=postgres.clock)

    assert [job.id for job in postgres.run(list_jobs())] == [second.id, first.id]


async def test_an_asynchronous_pipeline_of_psycopgs_is_served(postgres: Bench) -> None:
    job = new_job()

    async with await psycopg.AsyncConnection.connect(postgres.url) as tx, tx.pipeline():
        enqueued = await run_in_async(tx, jobs.enqueue(job), clock=postgres.clock)

    assert (enqueued.id, enqueued.is_new) == (job.id, True)
    assert [job.id for job in postgres.run(list_jobs())] == [job.id]


def test_djangos_own_connection_is_known() -> None:
    from django.db import connection

    assert is_async(connection) is False


def test_no_driver_is_imported_to_recognise_a_connection() -> None:
    program = "import sys, stagepost.database.transaction; print(*sys.modules, sep='\\n')"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    imported = set(done.stdout.split())
    assert not imported & {package for package, _ in SYNC_ADAPTERS | ASYNC_ADAPTERS if package != "sqlite3"}


@pytest.mark.parametrize("mode", ["STRICT_ALL_TABLES", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES"])
def test_mysql_receives_every_value_unchanged(mariadb: Bench, mode: str) -> None:
    every = "".join(map(chr, range(256))) + "\u2028 🚚"
    texts = ["", "\\", "'", '"', "\\'", "'\\", "';--", "%s %(a)s :now", every, *(text * 2 for text in every)]
    with mariadb.transaction() as connection:
        connection.execute(f"set session sql_mode = '{mode}'", ())
        try:
            got = connection.execute("select " + ", ".join(["%s"] * len(texts)), tuple(texts))
            values = connection.execute("select %s, %s, %s, %s", (None, -1, 2**63, True))
        finally:
            connection.execute("set session sql_mode = 'STRICT_ALL_TABLES'", ())

    assert got == [tuple(texts)]
    assert values == [(None, -1, 2**63, 1)]


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
def test_callers_settings_of_mysql_change_nothing(mariadb: Bench, setting: str) -> None:
    payload = msgspec.json.encode({"text": "Grüße 🚚 \" ' \\ \n"}).decode()
    job = new_job(payload=payload, unique_key="Müller")
    [kind] = [kind for kind in KINDS if kind.name == "pymysql"]
    with calling(kind, mariadb.url, mariadb.clock) as caller:
        caller.execute(setting)
        caller.run(jobs.enqueue(job))
        again = caller.run(jobs.enqueue(new_job(unique_key="müller")))
        same = caller.run(jobs.enqueue(new_job(unique_key="Müller")))
        caller.commit()

    assert (again.is_new, same.id) == (True, job.id)
    assert mariadb.run(jobs.get(job.id)).payload == payload


def test_a_mysql_session_that_checks_no_certificates_reads_none(mariadb: Bench) -> None:
    """Reading those of the system takes longer than all the rest of connecting, which every command does."""
    with closing(mariadb.database.store.database.connect()) as session:
        assert session.raw.ctx.cert_store_stats()["x509"] == 0


def test_a_mysql_session_that_cannot_be_set_up_is_closed(mariadb: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    make = connection._mysql_connection()

    def remembered(**options: Any) -> Any:
        opened.append(make(**options))
        return opened[-1]

    monkeypatch.setattr(connection, "_mysql_connection", lambda: remembered)
    monkeypatch.setattr(session, "LOCK_SECONDS", "'no number'")
    with pytest.raises(StoreUnavailable, match="Incorrect argument type"):
        mariadb.database.store.database.connect()

    assert [raw.open for raw in opened] == [False]


def test_a_postgresql_session_that_cannot_be_set_up_is_closed(postgres: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[psycopg.Connection[Any]] = []
    connect = psycopg.connect

    def remembered(*arguments: Any, **options: Any) -> psycopg.Connection[Any]:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(psycopg, "connect", remembered)
    monkeypatch.setattr(session, "POSTGRES_PLANS", "set session no_such_setting = on")
    with pytest.raises(StoreUnavailable, match="no_such_setting"):
        postgres.database.store.database.connect()

    assert [raw.closed for raw in opened] == [True]


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
    store.run(settling.settle([Settlement.of(leased, Refused("紙がない", "🚚"))]))

    assert other.is_new
    ended = store.run(jobs.get(job.id))
    assert (ended.payload, ended.error, ended.locked_by) == (job.payload, "紙がない", "配達人")
    assert [failure.traceback for failure in store.run(jobs.failures_of(job.id))] == ["🚚"]
    store.close()


def test_a_caller_with_serializable_transactions_is_served(postgres: Bench) -> None:
    job = new_job()
    [kind] = [kind for kind in KINDS if kind.name == "psycopg"]
    with calling(kind, postgres.url, postgres.clock) as caller:
        caller.execute("set transaction isolation level serializable")
        caller.run(jobs.enqueue(job))
        caller.commit()

    assert postgres.run(jobs.get(job.id)).state is JobState.QUEUED
