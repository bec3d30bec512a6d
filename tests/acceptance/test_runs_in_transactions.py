"""Runs in the caller's transaction: found, read and retried there; and a handler that knows its last attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stagepost import App, JobContext, Permanent, Pipeline, Retryable, RunHandle, RunState
from tests.acceptance.helpers import AT_ONCE, notes, work, write
from tests.conformance.bench import Colour, connect_async


class Mended:
    """A pipeline of one step that fails until it is mended."""

    def __init__(self, app: App) -> None:
        self.is_broken = True

        @app.task
        def step() -> str:
            if self.is_broken:
                raise Permanent("broken")
            return "done"

        self.pipeline: Pipeline = app.pipeline("mended")
        self.pipeline.step(step)

    def failed_run(self, app: App) -> RunHandle:
        run = self.pipeline.start("key")
        work(app)
        assert run.state() is RunState.FAILED
        self.is_broken = False
        return run


def test_a_retry_is_part_of_the_callers_transaction(app: App) -> None:
    run = Mended(app).failed_run(app)

    def retry_and_fail() -> None:
        with app.transaction() as tx:
            write(tx, "rolled back")
            assert run.retry(tx=tx) is RunState.RUNNING
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        retry_and_fail()
    assert (run.state(), notes(app)) == (RunState.FAILED, [])

    with app.transaction() as tx:
        write(tx, "retried")
        run.retry(tx=tx)
    work(app)
    assert (run.state(), run.result("step"), notes(app)) == (RunState.COMPLETED, "done", ["retried"])


def test_a_retry_is_part_of_the_callers_async_transaction(app: App) -> None:
    mended = Mended(app)
    run = mended.failed_run(app)

    async def retry() -> tuple[RunState, RunState]:
        connection = await connect_async(app.settings.database_url, Colour.ASYNC)
        found = await mended.pipeline.find_async("key", tx=connection)
        assert found is not None
        retried = await found.retry_async(tx=connection)
        seen = await found.graph_async(tx=connection)
        await connection.rollback()
        await closed(connection)
        return retried, seen.state

    assert asyncio.run(retry()) == (RunState.RUNNING, RunState.RUNNING)
    assert run.state() is RunState.FAILED


async def closed(connection: Any) -> None:
    """Close a connection of any driver; some give nothing to wait for."""
    closing = connection.close()
    if closing is not None:
        await closing


def test_a_run_is_seen_as_the_transaction_sees_it(app: App) -> None:
    mended = Mended(app)

    with app.transaction() as tx:
        assert mended.pipeline.find("new", tx=tx) is None
        started = mended.pipeline.start("new", tx=tx)
        found = mended.pipeline.find("new", tx=tx)
        assert found is not None
        assert found.id == started.id
        assert found.graph(tx=tx).steps[0].name == "step"


def test_a_transaction_that_reads_does_not_keep_others_from_writing(app: App) -> None:
    app.client.jobs()
    other = App(settings=app.settings)
    try:
        with app.transaction(read_only=True) as tx:
            cursor = tx.cursor()
            cursor.execute("select note from effect")
            cursor.fetchall()
            with other.transaction() as writing:
                write(writing, "meanwhile")
            cursor.close()
    finally:
        other.close()
    assert notes(app) == ["meanwhile"]


def test_a_handler_knows_whether_its_job_will_be_tried_again(app: App) -> None:
    seen: list[tuple[int, bool, bool]] = []

    @app.task(retry=AT_ONCE)
    def try_it(job: JobContext) -> None:
        seen.append((job.attempt, job.will_retry(Retryable("later")), job.will_retry(Permanent("never"))))
        raise Retryable("later")

    try_it.enqueue()
    work(app)

    assert seen == [(1, True, False), (2, True, False), (3, False, False)]
