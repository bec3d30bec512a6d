"""`async with app.transaction()` when it is cancelled, or its connection or a statement fails."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any

import psycopg
import pytest

from stagepost import App
from stagepost.errors import StoreError, StoreUnavailable
from tests.acceptance.helpers import LIMIT, notes, write
from tests.acceptance.lent_connections import execute, kind_of, pool_of_loop, write_async


async def test_a_cancelled_body_rolls_back_and_leaves_no_lock(app: App) -> None:
    started = asyncio.Event()

    async def hold() -> None:
        async with app.transaction() as tx:
            await write_async(tx, "cancelled")
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert pool_of_loop(app).in_use == 0
    async with app.transaction() as tx:
        await write_async(tx, "after")
    assert notes(app) == ["after"]
    await app.close_async()


LONG = {
    "sqlite": "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n",
    "postgres": "select pg_sleep(600)",
    "mysql": "select sleep(600)",
}


RUNNING = {
    "postgres": "select count(*) from pg_stat_activity where datname = current_database() and query = '{0}'",
    "mysql": "select count(*) from information_schema.processlist where db = database() and info = '{0}'",
}


async def until_it_runs(app: App) -> None:
    """Wait until the server runs the long statement: PostgreSQL ignores a request to cancel that is earlier."""
    asking = RUNNING.get(kind_of(app))
    async with asyncio.timeout(LIMIT):
        while asking is not None:
            with app.store.transaction() as connection:
                [(running,)] = connection.execute(asking.format(LONG[kind_of(app)]), {})
            if running:
                return
            await asyncio.sleep(0.01)


PROMPT = {
    "sqlite": "pragma busy_timeout = 2000",
    "postgres": "set local lock_timeout = '2s'",
    "mysql": "set session innodb_lock_wait_timeout = 2",
}


async def test_a_body_that_is_cancelled_during_a_statement_rolls_back_and_leaves_no_lock(app: App) -> None:
    started = asyncio.Event()
    async with app.transaction() as tx:
        await write_async(tx, "before")

    async def hold() -> None:
        async with app.transaction() as tx:
            await execute(tx, "update effect set note = 'cancelled'")
            started.set()
            # On SQLite without a cursor of its own, which aiosqlite closes after the statement, not before.
            await (tx.execute if kind_of(app) == "sqlite" else partial(execute, tx))(LONG[kind_of(app)])

    task = asyncio.create_task(hold())
    await started.wait()
    await until_it_runs(app)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, LIMIT)

    assert pool_of_loop(app).in_use == 0
    async with app.transaction() as tx:
        await execute(tx, PROMPT[kind_of(app)])
        await execute(tx, "update effect set note = 'after'")
    assert notes(app) == ["after"]
    await app.close_async()


async def test_one_that_is_cancelled_during_its_commit_commits_and_wakes_workers(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[set[str]] = []
    app.store.notifier.subscribe(lambda queues: heard.append(set(queues)))

    @app.task
    def greet() -> None: ...

    async def enqueue() -> None:
        async with app.transaction() as tx:
            await greet.using(tx).enqueue_async()
            connection = next(iter(pool_of_loop(app)._lent))
            commit = connection.commit

            async def cancelled_while_committing() -> None:
                task.cancel()
                await asyncio.sleep(0)
                await commit()

            monkeypatch.setattr(connection, "commit", cancelled_while_committing)

    task = asyncio.create_task(enqueue())
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(app.client.jobs()) == 1
    assert heard == [{"default"}]
    await app.close_async()


END_SESSION = {
    "postgres": ("select pg_backend_pid()", "select pg_terminate_backend({0})"),
    "mysql": ("select connection_id()", "kill {0}"),
}


@pytest.fixture
def server_app(app: App) -> App:
    if kind_of(app) == "sqlite":
        pytest.skip("has no sessions that could be ended")
    return app


async def end_session_of(app: App, tx: Any) -> None:
    """End the session of this one connection, as an administrator does."""
    asking, ending = END_SESSION[kind_of(app)]
    [(session,)] = await execute(tx, asking)
    with app.store.transaction() as connection:
        connection.execute(ending.format(session), {})


async def test_a_connection_that_dies_in_the_body_is_an_error_and_is_replaced(server_app: App) -> None:
    app = server_app

    async def lose() -> None:
        async with app.transaction() as tx:
            await write_async(tx, "lost")
            await end_session_of(app, tx)
            await write_async(tx, "lost as well")

    with pytest.raises(Exception, match=r"(?i)terminat|lost|gone|closed|kill"):
        await lose()

    async with app.transaction() as tx:
        await write_async(tx, "after")
    assert notes(app) == ["after"]
    await app.close_async()


async def test_a_commit_without_a_reply_says_that_it_may_have_happened(server_app: App) -> None:
    app = server_app

    async def lose() -> None:
        async with app.transaction() as tx:
            await write_async(tx, "in doubt")
            await end_session_of(app, tx)

    with pytest.raises(StoreUnavailable, match="may or may not be committed"):
        await lose()

    assert pool_of_loop(app).in_use == 0
    await app.close_async()


async def test_connections_that_died_in_the_pool_are_replaced_without_an_error(server_app: App) -> None:
    app = server_app
    async with app.transaction() as first, app.transaction() as second:
        await execute(first, "select 1")
        sessions = [(await execute(tx, END_SESSION[kind_of(app)][0]))[0][0] for tx in (first, second)]
    for session in sessions:
        with app.store.transaction() as connection:
            connection.execute(END_SESSION[kind_of(app)][1].format(session), {})

    async with app.transaction() as tx:
        assert [tuple(row) for row in await execute(tx, "select 7")] == [(7,)]
    await app.close_async()


async def test_a_failed_statement_leaves_the_connection_usable(app: App) -> None:
    async def fail() -> None:
        async with app.transaction() as tx:
            await write_async(tx, "undone")
            await execute(tx, "select * from no_such_table")

    for _ in range(3):
        with pytest.raises(Exception, match="no_such_table"):
            await fail()

    async with app.transaction() as tx:
        await write_async(tx, "after")
    assert notes(app) == ["after"]
    assert len(pool_of_loop(app)._idle) == 1
    await app.close_async()


@pytest.mark.parametrize("colour", ["blocking", "async"])
async def test_a_commit_after_a_hidden_error_is_an_error_on_postgresql(server_app: App, colour: str) -> None:
    """PostgreSQL answers such a COMMIT with ROLLBACK, without an error."""
    app = server_app
    if kind_of(app) != "postgres":
        pytest.skip("the transaction goes on there")

    async def hide_in_async() -> None:
        async with app.transaction() as tx:
            await write_async(tx, "lost")
            with contextlib.suppress(psycopg.errors.UndefinedTable):
                await execute(tx, "select * from no_such_table")

    async def hide_in_blocking() -> None:
        with app.transaction() as tx:
            write(tx, "lost")
            with contextlib.suppress(psycopg.errors.UndefinedTable):
                tx.execute("select * from no_such_table")

    with pytest.raises(StoreError, match="rolled back, not committed"):
        await (hide_in_async() if colour == "async" else hide_in_blocking())

    assert notes(app) == []
    await app.close_async()
