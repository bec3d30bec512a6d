"""Wake-ups bring jobs to idle workers at once, survive what happens to their connection, and are never needed (F39).

The workers here look for jobs once an hour (`wakeups.py`): what is run within a test was brought by a wake-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stagepost import Worker
from stagepost.database import Store
from stagepost.database.connection import Connection
from stagepost.database.wakeups import postgres
from stagepost.database.wakeups.postgres import PostgresWakeups
from stagepost.worker.claimer import EMPTY_SECONDS
from tests.fault.pgbouncer import PgBouncer
from tests.fault.proxy import FaultProxy
from tests.fault.wakeups import (
    HOUR,
    SOON,
    Signal,
    app_at,
    enqueue_in_another_app,
    enqueue_in_another_process,
    greeting,
    listening,
    opened,
    until,
    working,
)
from tests.services.fixtures import demand
from tests.services.locate import PGBOUNCER
from tests.services.processes import wait_until

LISTENING = (
    "select pid from pg_stat_activity where datname = current_database() and query = 'listen stagepost' "
    "and state = 'idle'"
)


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that tells other processes."""
    return url_of(request.param, request, tmp_path)


@pytest.fixture(params=["memory", "sqlite", "postgres", "mariadb"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path)


def url_of(name: str, request: pytest.FixtureRequest, folder: Path) -> str:
    match name:
        case "memory":
            return "sqlite://"
        case "sqlite":
            return f"sqlite:///{folder}/wakeups.db"
        case _:
            return str(request.getfixturevalue(f"{name}_database"))


async def test_an_idle_worker_runs_what_another_process_enqueues_at_once(shared_url: str) -> None:
    ran = Signal()
    app = app_at(shared_url, ran.set)
    with opened(app):
        async with working(app):
            await asyncio.to_thread(enqueue_in_another_process, shared_url)

            await ran.come()


async def test_an_idle_worker_runs_what_its_own_process_enqueues_at_once(any_url: str) -> None:
    ran = Signal()
    app = app_at(any_url, ran.set)
    with opened(app):
        async with working(app):
            await asyncio.to_thread(app.client.enqueue, greeting(app))
            await ran.come()

            await app.client.enqueue_async(greeting(app))
            await ran.come()


async def test_a_job_enqueued_in_a_lent_transaction_wakes_the_worker_once_it_is_committed(any_url: str) -> None:
    ran = Signal()
    app = app_at(any_url, ran.set)

    def enqueue() -> None:
        with app.transaction() as tx:
            app.client.enqueue(greeting(app), tx=tx)

    with opened(app):
        async with working(app):
            await asyncio.to_thread(enqueue)

            await ran.come()


def test_workers_are_not_notified_of_a_lent_transaction_before_its_commit_or_after_its_rollback() -> None:
    rung: list[set[str]] = []
    app = app_at("sqlite://")
    with opened(app):
        app.store.notifier.subscribe(lambda queues: rung.append(set(queues)))

        with app.transaction() as tx:
            app.client.enqueue(greeting(app), tx=tx)
            before_commit = list(rung)
        after_commit = list(rung)
        with contextlib.suppress(ZeroDivisionError), app.transaction() as tx:
            app.client.enqueue(greeting(app), tx=tx)
            raise ZeroDivisionError

    assert before_commit == []
    assert after_commit == [{"mail"}]
    assert rung == [{"mail"}]


async def test_two_idle_workers_share_new_jobs(shared_url: str) -> None:
    both = threading.Barrier(2)
    apps = [app_at(shared_url, concurrency=1, prefetch=0) for _ in range(2)]
    for app in apps:
        app.task(name="meet", queue="mail")(lambda: both.wait(SOON))
    producer = app_at(shared_url)
    meet = producer.task(name="meet", queue="mail")(lambda: 0)
    with opened(*apps, producer):
        async with working(apps[0]), working(apps[1]):
            handles = await asyncio.to_thread(producer.enqueue_many, [meet.job(), meet.job()])

            results = [await handle.result_async(timeout=SOON) for handle in handles]

    assert sorted(results) == [0, 1], "each worker ran one, at the same time as the other"


async def test_a_storm_of_wake_ups_for_nothing_does_not_become_a_storm_of_claims() -> None:
    app = app_at("sqlite://")
    with opened(app):
        async with working(app) as worker:
            loop = asyncio.get_running_loop()
            passes, start = worker.parts.claimer.empty_passes, loop.time()
            while worker.parts.claimer.empty_passes < passes + 10:
                worker.parts.claimer.wake()
                await asyncio.sleep(0)

            assert loop.time() - start > 9 * EMPTY_SECONDS


async def test_a_listener_whose_session_is_ended_listens_again_within_five_seconds(
    postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    ran = Signal()
    app, producer = app_at(postgres_database, ran.set), app_at(postgres_database)
    with opened(app, producer), psycopg.connect(postgres_database, autocommit=True) as operator:
        async with working(app) as worker:
            [(old,)] = operator.execute(LISTENING).fetchall()
            operator.execute("select pg_terminate_backend(%s)", [old])
            ended_at = asyncio.get_running_loop().time()
            await until(lambda: not is_listening(operator, old) and worker.parts.wakeups.is_hearing)
            assert asyncio.get_running_loop().time() - ended_at < 5

            await asyncio.to_thread(producer.client.enqueue, greeting(producer))

            await ran.come()
    assert "no wake-ups: the connection was lost" in caplog.text


def is_listening(operator: psycopg.Connection[Any], pid: int) -> bool:
    return (pid,) in operator.execute(LISTENING).fetchall()


def test_a_listener_that_hangs_is_noticed_by_its_probe(
    postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = app_at(postgres_database)
    with FaultProxy.to(postgres_database) as proxy, opened(producer):
        connect = Store.at(proxy.url_for(postgres_database)).database.connect
        wakeups = PostgresWakeups(connect, ["mail"], probe_seconds=1, probe_every_seconds=0.1)
        with listening(wakeups):
            proxy.swallow()  # half-open: nobody is told
            proxy.pass_through()

            wait_until(lambda: "did not arrive" in caplog.text, "the probe to fail", seconds=SOON)
            wait_until(lambda: wakeups.is_hearing, "another connection", seconds=SOON)


def test_a_listener_whose_statement_is_never_answered_connects_again(
    postgres_database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "STATEMENT_SECONDS", 0.5)
    with FaultProxy.to(postgres_database) as proxy:
        connect = Store.at(proxy.url_for(postgres_database)).database.connect
        opened_connections: list[Connection] = []

        def connect_and_hang_once() -> Connection:
            opened_connections.append(connect())
            if len(opened_connections) == 1:
                proxy.swallow()
            return opened_connections[-1]

        wakeups = PostgresWakeups(connect_and_hang_once, ["mail"])
        wakeups.start(lambda: None)
        wait_until(lambda: "the connection was lost" in caplog.text, "the statement to be aborted", seconds=SOON)
        proxy.pass_through()
        wait_until(lambda: wakeups.is_hearing, "another connection", seconds=SOON)
        wakeups.stop()


def test_a_listener_hears_of_its_own_queues_only(postgres_database: str) -> None:
    app = app_at(postgres_database)
    digest = app.task(name="digest", queue="reports")(lambda: None)
    wakeups = [PostgresWakeups(app.store.database.connect, [queue]) for queue in ("mail", "reports")]
    with opened(app), listening(wakeups[0]) as mail, listening(wakeups[1]) as reports:
        digest.enqueue()
        reports.hears()
        app.client.enqueue(greeting(app))
        mail.hears()

        assert mail.is_quiet
        assert reports.is_quiet


def test_a_database_that_does_not_answer_blocks_nobody() -> None:
    never = threading.Event()
    wakeups = PostgresWakeups(lambda: never.wait(HOUR), ["mail"])  # type: ignore[arg-type,return-value]
    started_at = time.monotonic()

    wakeups.start(lambda: None)
    wakeups.stop()

    never.set()
    assert time.monotonic() - started_at < SOON


@pytest.fixture
def bouncer(postgres_database: str, pytestconfig: pytest.Config) -> Iterator[PgBouncer]:
    demand(PGBOUNCER, pytestconfig)
    with PgBouncer(postgres_database) as server:
        yield server


async def test_behind_a_pooler_a_worker_warns_and_finds_jobs_by_polling(
    postgres_database: str, bouncer: PgBouncer, caplog: pytest.LogCaptureFixture
) -> None:
    ran = Signal()
    app = app_at(bouncer.url, ran.set, poll_shortest_seconds=0.05, poll_longest_seconds=0.1)
    with opened(app):
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await until(lambda: "PgBouncer in transaction mode" in caplog.text)

        for _ in range(10):  # more than the executions after which the driver would prepare a statement
            await asyncio.to_thread(enqueue_in_another_app, postgres_database)
            await ran.come()

        assert not worker.parts.wakeups.is_hearing
        worker.stop()
        await running
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
