"""Tests of applications in which jobs run at once, where they are enqueued."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stagepost import App, Cancelled, JobContext, JobState, Snooze, current_job
from stagepost.errors import NoTransaction, PayloadError
from stagepost.testing import Inline, inline

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/production.db")


@pytest.fixture
def here(app: App) -> Iterator[Inline]:
    with inline(app) as mode:
        yield mode


def test_inline_a_plain_task_runs_in_the_calling_thread_before_enqueue_returns(app: App, here: Inline) -> None:
    seen: list[tuple[int, int]] = []

    @app.task
    def double(job: JobContext, number: int) -> int:
        assert current_job() is job
        seen.append((threading.get_ident(), number))
        return 2 * number

    handle = double.using(delay=60).enqueue(21)

    assert seen == [(threading.get_ident(), 21)]
    assert handle.result() == 42
    here.assert_enqueued(double, 21, count=1)


def test_inline_many_jobs_run_one_after_the_other_if_all_have_good_arguments(app: App, here: Inline) -> None:
    seen: list[int] = []

    @app.task
    def double(number: int) -> int:
        seen.append(number)
        return 2 * number

    handles = double.enqueue_many([(1,), {"number": 2}])
    with pytest.raises(PayloadError, match=r"arguments\[1\]"):
        double.enqueue_many([(3,), ("four",)])
    others = asyncio.run(double.enqueue_many_async([(5,)]))

    assert seen == [1, 2, 5]
    assert [handle.result() for handle in [*handles, *others]] == [2, 4, 10]
    here.assert_enqueued(double, 2, count=1)


def test_inline_enqueue_raises_the_tasks_exception_and_records_it_on_the_job(app: App, here: Inline) -> None:
    @app.task
    def fail() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail.enqueue()

    [enqueued] = here.enqueued(fail)
    assert enqueued.state is JobState.RETRYING
    assert [failure.error for failure in app.client.failures(enqueued.id)] == ["ValueError: wrong"]


def test_inline_snooze_and_cancel_are_not_errors(app: App, here: Inline) -> None:
    @app.task
    def not_now() -> None:
        raise Snooze(60)

    @app.task
    def never() -> None:
        raise Cancelled("changed my mind")

    not_now.enqueue()
    never.enqueue()

    assert [job.state for job in here.enqueued()] == [JobState.SCHEDULED, JobState.CANCELLED]


def test_inline_arguments_and_results_go_through_json(app: App, here: Inline) -> None:
    received: list[object] = []

    @app.task
    def keep(numbers: list[int]) -> int:
        received.append(numbers)
        return len(numbers)

    @app.task
    def unstorable() -> object:
        return object()

    numbers = [1, 2]
    keep.enqueue(numbers)
    assert received == [numbers]
    assert received[0] is not numbers
    with pytest.raises(PayloadError):
        keep.enqueue({3})  # type: ignore[arg-type]
    with pytest.raises(PayloadError):
        unstorable.enqueue()


async def test_inline_async_tasks_run_wherever_they_are_enqueued(app: App, here: Inline) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @app.task
    async def note() -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    await note.enqueue_async()
    note.enqueue()
    await asyncio.to_thread(note.enqueue)

    assert loops[0] is asyncio.get_running_loop()
    assert len(set(map(id, loops))) == 3


def test_inline_tasks_that_enqueue_others_run_those_first(app: App, here: Inline) -> None:
    order: list[str] = []

    @app.task
    def inner() -> None:
        order.append("inner")

    @app.task
    def outer() -> None:
        inner.enqueue()
        order.append("outer")

    app.enqueue_many([outer.job(), outer.job()])

    assert order == ["inner", "outer", "inner", "outer"]


def test_inline_a_handler_may_end_its_job_in_a_transaction(app: App, here: Inline) -> None:
    @app.task
    def charge(job: JobContext) -> str:
        with app.transaction() as tx:
            job.complete(tx, "in the transaction")
        return "returned"

    assert charge.enqueue().result() == "in the transaction"


def test_inline_a_connection_without_a_transaction_is_refused_as_in_production(app: App, here: Inline) -> None:
    @app.task
    def greet() -> None: ...

    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as tx:
        with pytest.raises(NoTransaction):
            greet.using(tx).enqueue()
        tx.execute("begin")
        greet.using(tx).enqueue()

    here.assert_enqueued(greet, count=1)


def test_inline_a_job_enqueued_in_the_apps_transaction_runs_when_that_commits(app: App, here: Inline) -> None:
    order: list[str] = []

    @app.task
    def note(name: str) -> None:
        with app.transaction():
            order.append(name)

    @app.task
    async def fail() -> None:
        raise ValueError("wrong")

    with app.transaction() as tx:
        note.using(tx).enqueue("Ann")
        order.append("commit")
    with contextlib.suppress(ZeroDivisionError), app.transaction() as tx:
        note.using(tx).enqueue("Bob")
        raise ZeroDivisionError
    assert order == ["commit", "Ann"]

    with pytest.raises(ValueError, match="wrong"), app.transaction() as tx:
        fail.using(tx).enqueue()
