"""`async with app.transaction()` on a database in memory, and in tests that run jobs inline or drain them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagepost import App, JobContext, JobState
from stagepost.errors import StoreUnavailable
from stagepost.testing import inline, manual


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path}/test.db"


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/production.db")


@pytest.fixture
def in_memory() -> Iterator[App]:
    with contextlib.closing(App("sqlite://")) as app:
        yield app


async def test_a_database_in_memory_lends_its_only_connection(in_memory: App) -> None:
    async with in_memory.transaction() as tx:
        await tx.execute("create table note (text)")
        await tx.execute("insert into note values ('kept')")
    with contextlib.suppress(ZeroDivisionError):
        async with in_memory.transaction() as tx:
            await tx.execute("insert into note values ('undone')")
            raise ZeroDivisionError

    with in_memory.transaction() as blocking:
        assert blocking.execute("select text from note").fetchall() == [("kept",)]
    assert in_memory.store.pool.in_use == 0


async def test_a_cancelled_body_gives_the_connection_of_a_database_in_memory_back(in_memory: App) -> None:
    started = asyncio.Event()

    async def hold() -> None:
        async with in_memory.transaction() as tx:
            await tx.execute("create table undone (text)")
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    with in_memory.transaction() as blocking:
        assert blocking.execute("select name from sqlite_master where name = 'undone'").fetchall() == []


async def test_one_that_waits_in_vain_for_the_connection_of_a_database_in_memory_is_told_why(in_memory: App) -> None:
    in_memory.store.pool.wait_seconds = 0.01
    with in_memory.transaction(), pytest.raises(StoreUnavailable, match="no database connection became free"):
        await in_memory.transaction().__aenter__()

    async with in_memory.transaction() as tx:
        await tx.execute("select 1")


async def test_inline_jobs_of_an_async_transaction_run_in_the_coroutine_when_it_commits(app: App, url: str) -> None:
    order: list[object] = []

    @app.task
    async def note(name: str) -> None:
        async with app.transaction() as tx:
            await tx.execute("select 1")
        order.append((name, asyncio.get_running_loop() is loop))

    @app.task
    async def fail() -> None:
        raise ValueError("wrong")

    async def enqueue_failing() -> None:
        async with app.transaction() as tx:
            await fail.using(tx).enqueue_async()
            order.append("before")

    loop = asyncio.get_running_loop()
    with inline(app, database_url=url):
        async with app.transaction() as tx:
            await note.using(tx).enqueue_async("Ann")
            order.append("commit")
        with contextlib.suppress(ZeroDivisionError):
            async with app.transaction() as tx:
                await note.using(tx).enqueue_async("Bob")
                raise ZeroDivisionError
        with pytest.raises(ValueError, match="wrong"):
            await enqueue_failing()
        await app.async_transactions.close_async()

    assert order == ["commit", ("Ann", True), "before"]


def test_inline_a_handler_may_end_its_job_in_an_async_transaction(app: App, url: str) -> None:
    @app.task
    async def charge(job: JobContext) -> str:
        async with app.transaction() as tx:
            await job.complete_async(tx, "in the transaction")
        return "returned"

    with inline(app, database_url=url):
        assert charge.enqueue().result() == "in the transaction"


def test_manual_an_async_transaction_works_in_a_job_that_is_drained(app: App, url: str) -> None:
    @app.task
    async def charge(job: JobContext) -> None:
        async with app.transaction() as tx:
            await follow_up.using(tx).enqueue_async()
            await job.complete_async(tx)

    @app.task
    def follow_up() -> None: ...

    with manual(app, database_url=url) as jobs:
        charge.enqueue()
        drained = jobs.drain()

    assert [(run.task.rpartition(".")[2], run.state) for run in drained.runs] == [
        ("charge", JobState.COMPLETED),
        ("follow_up", JobState.COMPLETED),
    ]
