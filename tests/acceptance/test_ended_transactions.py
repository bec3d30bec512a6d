"""`app.transaction()` is never committed in part, although its body caught the error that ended or spoilt it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pymysql
import pytest

from stagepost import App
from stagepost.errors import StagepostError, StoreError, StoreUnavailable
from tests.acceptance.helpers import LIMIT, notes, write

COLOURS = ("blocking", "async")


def kind_of(app: App) -> str:
    return app.store.dialect.name


async def execute(tx: Any, sql: str) -> None:
    """Run a statement on any driver's connection, blocking or asynchronous."""
    cursor = tx.cursor()
    if hasattr(cursor, "__await__"):
        cursor = await cursor
    for call in (lambda: cursor.execute(sql), cursor.close):
        answer = call()
        if hasattr(answer, "__await__"):
            await answer


@contextlib.asynccontextmanager
async def transaction(app: App, colour: str) -> Any:
    """Open `app.transaction()` in one of its two forms."""
    if colour == "async":
        async with app.transaction() as tx:
            yield tx
    else:
        with app.transaction() as tx:
            yield tx


@pytest.fixture
def on_mysql(app: App) -> App:
    if kind_of(app) != "mysql":
        pytest.skip("only MySQL and MariaDB go on after a rollback, outside any transaction")
    with app.transaction() as tx:
        write(tx, "ours")
        write(tx, "theirs")
    return app


@contextlib.contextmanager
def opponent(app: App) -> Iterator[Any]:
    """Another connection in a transaction that the server prefers, because it has written more."""
    connection = pymysql.connect(**app.store.database.options)  # type: ignore[attr-defined]
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("set session transaction isolation level read committed")
        connection.begin()
        cursor.executemany("insert into effect (note) values (%s)", [("weight",)] * 200)
        cursor.execute("update effect set note = 'theirs' where note = 'theirs'")
        yield cursor
        connection.rollback()


async def run_into_deadlock(app: App, tx: Any) -> None:
    """Let the server roll the transaction of `tx` back, and hide its error."""
    with opponent(app) as other, ThreadPoolExecutor() as threads:
        await execute(tx, "update effect set note = 'changed' where note = 'ours'")
        waiting = threads.submit(other.execute, "update effect set note = 'x' where note in ('ours', 'changed')")
        with pytest.raises(Exception, match="1213"):  # one class for each driver
            await execute(tx, "update effect set note = 'changed' where note = 'theirs'")
        await asyncio.to_thread(waiting.result, LIMIT)


@pytest.fixture
def indexed(on_mysql: App) -> Iterator[App]:
    """As `on_mysql`, where statements lock only the rows that they change."""
    for sql in ("create index effect_note on effect (note)", "drop index effect_note on effect"):
        with on_mysql.store.transaction() as connection:
            connection.execute(sql, {})
        if sql.startswith("create"):
            yield on_mysql


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_deadlock_that_the_body_caught_refuses_the_commit(indexed: App, colour: str) -> None:
    app = indexed

    async def hide_a_deadlock() -> None:
        async with transaction(app, colour) as tx:
            await execute(tx, "insert into effect (note) values ('before')")
            await run_into_deadlock(app, tx)

    with pytest.raises(StoreError, match=r"ended this transaction .*1213"):
        await hide_a_deadlock()

    assert notes(app) == ["ours", "theirs"]
    async with transaction(app, colour) as tx:  # the connection is used again
        await execute(tx, "insert into effect (note) values ('after')")
    assert notes(app) == ["after", "ours", "theirs"]
    await app.close_async()


@pytest.mark.parametrize("colour", COLOURS)
async def test_statements_after_a_deadlock_have_no_effect(indexed: App, colour: str) -> None:
    app = indexed

    @app.task
    def greet() -> None: ...

    async def go_on_after_a_deadlock() -> None:
        async with transaction(app, colour) as tx:
            await run_into_deadlock(app, tx)
            with contextlib.suppress(StoreError):
                await execute(tx, "insert into effect (note) values ('after')")
            with contextlib.suppress(StoreError):
                await (greet.using(tx).enqueue_async() if colour == "async" else asyncio.sleep(0))
                if colour == "blocking":
                    greet.using(tx).enqueue()

    with pytest.raises(StoreError, match="ended this transaction"):
        await go_on_after_a_deadlock()

    assert notes(app) == ["ours", "theirs"]
    assert app.client.jobs() == []
    await app.close_async()


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_failed_statement_that_undid_only_itself_can_be_caught(indexed: App, colour: str) -> None:
    """A lock wait timeout, like a duplicate key, leaves the rest of the transaction as it is."""
    app = indexed
    with opponent(app):
        async with transaction(app, colour) as tx:
            await execute(tx, "set session innodb_lock_wait_timeout = 1")
            await execute(tx, "insert into effect (note) values ('kept')")
            with pytest.raises(Exception, match="1205"):
                await execute(tx, "update effect set note = 'waited' where note = 'theirs'")

    assert notes(app) == ["kept", "ours", "theirs"]
    await app.close_async()


END_SESSION = {
    "postgres": ("select pg_backend_pid()", "select pg_terminate_backend({0})"),
    "mysql": ("select connection_id()", "kill {0}"),
}


def test_a_blocking_commit_without_a_reply_says_that_it_may_have_happened(app: App) -> None:
    if kind_of(app) == "sqlite":
        pytest.skip("has no sessions that could be ended")
    asking, ending = END_SESSION[kind_of(app)]

    def lose() -> None:
        with app.transaction() as tx:
            write(tx, "in doubt")
            with closing(tx.cursor()) as cursor:
                cursor.execute(asking)
                [session] = cursor.fetchone()
            with app.store.transaction() as other:
                other.execute(ending.format(session), {})

    with pytest.raises(StoreUnavailable, match="may or may not be committed"):
        lose()

    with app.transaction() as tx:
        write(tx, "after")
    assert notes(app) == ["after"]


@pytest.mark.parametrize("colour", COLOURS)
async def test_an_operation_that_failed_halfway_refuses_the_commit(app: App, colour: str) -> None:
    """Its first statements have had their effect; without the others a job would exist that no count knows."""

    @app.task
    def greet() -> None: ...

    async def hide_an_error() -> None:
        async with transaction(app, colour) as tx:
            with contextlib.suppress(StagepostError):
                if colour == "async":
                    await greet.using(tx).enqueue_async()
                else:
                    greet.using(tx).enqueue()

    with app.store.transaction() as connection:
        connection.execute("alter table stagepost_move rename to hidden_move", {})
    try:
        with pytest.raises(StoreError, match="rolled back"):
            await hide_an_error()
    finally:
        with app.store.transaction() as connection:
            connection.execute("alter table hidden_move rename to stagepost_move", {})

    assert app.client.jobs() == []
    await app.close_async()


def test_an_operation_that_failed_in_a_savepoint_does_not_harm_the_rest_on_postgresql(app: App) -> None:
    if kind_of(app) != "postgres":
        pytest.skip("only PostgreSQL tells whether the savepoint was restored")

    @app.task
    def greet() -> None: ...

    with app.transaction() as tx:
        write(tx, "kept")
        tx.execute("alter table stagepost_move rename to hidden_move")
        with contextlib.suppress(StagepostError), tx.transaction():
            greet.using(tx).enqueue()
        tx.execute("alter table hidden_move rename to stagepost_move")

    assert notes(app) == ["kept"]
    assert app.client.jobs() == []
