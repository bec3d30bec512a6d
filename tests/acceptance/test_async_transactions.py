"""`async with app.transaction()`: its commit, its rollback, its errors, and the pool that it borrows from."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from typing import Any

import pytest

from stagepost import App, JobContext, JobState, Worker
from stagepost.database.async_pool import AsyncPool
from stagepost.errors import ConfigurationError, LeaseLost, StoreUnavailable
from tests.acceptance.helpers import LIMIT, notes, work, write
from tests.acceptance.lent_connections import changed, execute, kind_of, pool_of_loop, write_async


async def test_it_lends_a_connection_of_the_asynchronous_driver(app: App) -> None:
    async with app.transaction() as tx:
        kinds = {(base.__module__.partition(".")[0], base.__name__) for base in type(tx).__mro__}

    assert kinds & {("aiosqlite", "Connection"), ("psycopg", "AsyncConnection"), ("asyncmy", "Connection")}
    await app.close_async()


async def test_a_job_is_enqueued_if_and_only_if_the_transaction_commits(app: App) -> None:
    @app.task
    def greet(name: str) -> None: ...

    async with app.transaction() as tx:
        await write_async(tx, "kept")
        kept = await greet.using(tx).enqueue_async("kept")
    with contextlib.suppress(ZeroDivisionError):
        async with app.transaction() as tx:
            await write_async(tx, "undone")
            await greet.using(tx).enqueue_async("undone")
            raise ZeroDivisionError

    assert [job.id for job in app.client.jobs()] == [kept.id]
    assert notes(app) == ["kept"]
    assert pool_of_loop(app).in_use == 0
    await app.close_async()


def test_a_handler_completes_its_job_together_with_what_it_writes(app: App) -> None:
    @app.task
    async def pay(job: JobContext) -> str:
        async with app.transaction() as tx:
            await write_async(tx, "paid")
            await job.complete_async(tx, "receipt")
        return "not this one"

    @app.task
    async def give_up(job: JobContext) -> str:
        with contextlib.suppress(ZeroDivisionError):
            async with app.transaction() as tx:
                await write_async(tx, "never")
                await job.complete_async(tx, "receipt")
                raise ZeroDivisionError
        return "unpaid"

    paid, unpaid = pay.enqueue(), give_up.enqueue()
    work(app)

    assert (paid.result(timeout=0), unpaid.result(timeout=0)) == ("receipt", "unpaid")
    assert notes(app) == ["paid"]


def test_a_handler_that_lost_its_lease_writes_nothing(app: App) -> None:
    errors: list[BaseException] = []

    @app.task
    async def pay(job: JobContext) -> None:
        with app.store.transaction() as connection:
            connection.execute("update stagepost_job set attempts = 2", {})
        try:
            async with app.transaction() as tx:
                await write_async(tx, "paid")
                await job.complete_async(tx)
        except LeaseLost as error:
            errors.append(error)
            raise

    pay.enqueue()
    work(app)

    assert [type(error) for error in errors] == [LeaseLost]
    assert notes(app) == []


def test_a_blocking_transaction_on_the_event_loop_still_works(app: App) -> None:
    @app.task
    async def pay(job: JobContext) -> None:
        with app.transaction() as tx:
            write(tx, "paid")
            job.complete(tx)

    job = pay.enqueue()
    work(app)

    assert app.client.job(job.id).state is JobState.COMPLETED
    assert notes(app) == ["paid"]


async def test_fifty_coroutines_share_five_connections(app: App) -> None:
    shared = changed(app, pool_size=5)
    expected = 1 if kind_of(app) == "sqlite" else 5
    most = 0
    all_are_lent = asyncio.Event()

    async def write_one(number: int) -> None:
        nonlocal most
        async with shared.transaction() as tx:
            most = max(most, pool_of_loop(shared).in_use)
            if most == expected:
                all_are_lent.set()
            await all_are_lent.wait()
            await write_async(tx, f"{number:02}")
            await asyncio.sleep(0)

    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*(write_one(number) for number in range(50)))

    assert most == expected
    assert len(pool_of_loop(shared)._idle) <= 5
    await shared.close_async()
    assert notes(app) == [f"{number:02}" for number in range(50)]


async def test_one_that_waits_for_a_connection_can_be_cancelled(app: App) -> None:
    single = changed(app, pool_size=1)

    async def wait() -> None:
        async with single.transaction():
            raise AssertionError("not reached")

    async with single.transaction():
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with single.transaction() as tx:
        await execute(tx, "select 1")

    assert pool_of_loop(single).in_use == 0
    await single.close_async()


async def test_one_that_waits_too_long_for_a_connection_is_told_why(app: App) -> None:
    single = changed(app, pool_size=1)
    single.users_store.pool.wait_seconds = 0.01

    async with single.transaction():
        with pytest.raises(StoreUnavailable, match=r"no database connection became free.*pool_size"):
            await single.transaction().__aenter__()

    await single.close_async()


async def test_workers_of_this_process_are_told_after_the_commit_and_not_of_a_rollback(app: App) -> None:
    heard: list[set[str]] = []
    app.store.notifier.subscribe(lambda queues: heard.append(set(queues)))

    @app.task(queue="bells")
    def ring() -> None: ...

    with contextlib.suppress(ZeroDivisionError):
        async with app.transaction() as tx:
            await ring.using(tx).enqueue_async()
            raise ZeroDivisionError
    async with app.transaction() as tx:
        await ring.using(tx).enqueue_async()
        assert heard == []

    assert heard == [{"bells"}]
    await app.close_async()


async def test_an_idle_worker_is_woken_by_the_commit(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    seldom = changed(app, poll_shortest_seconds=600.0, poll_longest_seconds=600.0)
    ran, found_nothing = asyncio.Event(), asyncio.Event()

    @seldom.task
    async def ring() -> None:
        ran.set()

    worker = Worker(seldom)
    claim = worker.parts.claimer.run_once

    async def noted() -> int:
        claimed = await claim()
        found_nothing.set()
        return claimed

    monkeypatch.setattr(worker.parts.claimer, "run_once", noted)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(LIMIT):
        await found_nothing.wait()
        async with seldom.transaction() as tx:
            await ring.using(tx).enqueue_async()
        await ran.wait()
        worker.stop()
        await running
    await seldom.close_async()


@pytest.mark.parametrize(("package", "kind"), [("aiosqlite", "sqlite"), ("asyncmy", "mysql")])
async def test_a_missing_driver_is_named_with_the_way_to_install_it(
    app: App, monkeypatch: pytest.MonkeyPatch, package: str, kind: str
) -> None:
    if kind_of(app) != kind:
        pytest.skip(f"needs no {package}")
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ConfigurationError, match=rf"pip install 'stagepost\[{package}\]'"):
        await app.transaction().__aenter__()

    with app.transaction() as tx:
        write(tx, "blocking still works")
    await app.close_async()


def test_connections_are_closed_when_their_loop_ends(app: App) -> None:
    async def use() -> Any:
        async with app.transaction() as tx:
            await write_async(tx, "once")
        return pool_of_loop(app)

    pools = [asyncio.run(use()), asyncio.run(use())]

    assert [(pool.is_closed, pool._idle, pool._closing) for pool in pools] == [(True, [], set())] * 2
    gc.collect()  # a connection that was left open would be reported here


def test_closing_the_app_closes_the_connections_of_a_loop_that_is_paused(app: App) -> None:
    async def use() -> AsyncPool:
        async with app.transaction() as tx:
            await write_async(tx, "once")
        return pool_of_loop(app)

    with asyncio.Runner() as runner:
        pool = runner.run(use())
        app.close()
        assert (pool.is_closed, pool._idle, pool._closing) == (True, [], set())
        runner.run(use())


async def test_closing_the_app_on_its_own_loop_closes_the_connections_soon(app: App) -> None:
    async with app.transaction() as tx:
        await write_async(tx, "once")
    pool = pool_of_loop(app)
    app.close()
    async with app.transaction() as tx:
        await write_async(tx, "twice")

    await app.close_async()
    assert (pool.is_closed, pool._idle, pool._closing) == (True, [], set())
    assert notes(app) == ["once", "twice"]


SETTINGS: dict[str, list[str]] = {
    "sqlite": ["pragma journal_mode", "pragma synchronous", "pragma busy_timeout", "pragma foreign_keys"],
    "postgres": [
        f"select current_setting('{name}')"
        for name in (
            *("lock_timeout", "idle_in_transaction_session_timeout", "default_transaction_isolation"),
            *("transaction_isolation", "enable_seqscan", "jit", "application_name", "statement_timeout"),
        )
    ],
    "mysql": [
        "select @@innodb_lock_wait_timeout, @@sql_mode, @@tx_isolation, @@autocommit, @@character_set_client",
        "select @@idle_transaction_timeout, @@character_set_connection, @@max_allowed_packet",
        "show session status like 'Ssl_cipher'",
    ],
}


async def test_its_sessions_are_configured_as_the_blocking_ones_are(app: App) -> None:
    asked = SETTINGS[kind_of(app)]
    async with app.transaction() as tx:
        asynchronous = [[tuple(row) for row in await execute(tx, sql)] for sql in asked]
    with app.transaction() as tx:
        blocking = []
        for sql in asked:
            cursor = tx.cursor()
            cursor.execute(sql)
            blocking.append([tuple(row) for row in cursor.fetchall()])
            cursor.close()

    assert asynchronous == blocking
    await app.close_async()


async def test_a_read_only_transaction_takes_no_write_lock_on_sqlite(app: App) -> None:
    if kind_of(app) != "sqlite":
        pytest.skip("readers wait for nobody there")
    with app.transaction() as writing:
        write(writing, "written")
        async with app.transaction(read_only=True) as tx:
            assert await execute(tx, "select note from effect") == []

    await app.close_async()
