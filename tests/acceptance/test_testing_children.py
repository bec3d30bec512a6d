"""Tests of applications whose jobs have children."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, AppTask, JobContext, JobState, Permanent, RateLimit, RetryPolicy, Snooze
from stagepost.testing import inline, manual

HOUR = timedelta(hours=1)


@pytest.fixture
def app(tmp_path: Path) -> App:
    app = App(f"sqlite:///{tmp_path}/production.db")

    @app.task(name="leaf", retry=RetryPolicy(max_attempts=2, first_delay=HOUR, longest_delay=HOUR, jitter=0))
    def leaf(job: JobContext, number: int) -> int:
        if number == 13 and job.attempt == 1:
            raise OSError("bad luck")
        if number < 0:
            raise Permanent("too small")
        return number

    @app.task(name="add_up", max_running=1)
    async def add_up(job: JobContext) -> int:
        return sum([child.result or 0 async for child in job.children_async(leaf)])

    @app.task(name="top", pool="process")
    def top(job: JobContext, numbers: list[int]) -> int:
        for number in numbers:
            job.submit(leaf, number)
        return job.then(add_up)

    @app.task(name="topmost")
    async def topmost(job: JobContext) -> str:
        await job.submit_async(top, [1, 2])
        await job.submit_async(top, [3])
        return "done"

    declare_others(app)
    return app


def declare_others(app: App) -> None:
    @app.task(name="in_a_transaction")
    def in_a_transaction(job: JobContext) -> str:
        with app.transaction() as tx:
            job.using(tx, key="one").submit(task(app, "leaf"), 1)
            job.complete(tx, "done")
        return "done"

    @app.task(name="put_off", rate_limit=RateLimit("slow", per_second=1))
    def put_off(job: JobContext) -> None:
        if job.attempt == 1:
            raise Snooze(HOUR)

    @app.task(name="patient")
    def patient(job: JobContext) -> Any:
        job.submit(put_off)
        return job.then(task(app, "add_up"))


def task(app: App, name: str) -> AppTask[..., Any]:
    found = app.registry.get(name)
    assert isinstance(found, AppTask)
    return found


def test_drain_runs_children_and_continuations(app: App) -> None:
    with manual(app) as jobs:
        job = task(app, "topmost").enqueue()

        drained = jobs.drain()

        assert job.result() == "done"
        assert drained.left == {}
        assert sorted(run.task for run in drained.runs) == [
            *("add_up", "add_up", "leaf", "leaf", "leaf", "top", "top", "topmost")
        ]
        assert sorted(child.result for child in app.client.jobs(parent_id=job.id)) == [3, 3]


def test_drain_moves_the_clock_to_a_child_that_is_tried_again(app: App) -> None:
    with manual(app) as jobs:
        job = task(app, "top").enqueue([13, -1])

        first = jobs.drain()
        assert (first.left, first.count(JobState.WAITING)) == ({JobState.RETRYING: 1, JobState.WAITING: 1}, 1)
        jobs.drain(until=HOUR)

        assert job.result() == 13
        assert (job.children().completed, job.children().failed) == (1, 1)


def test_drain_cancels_the_tree_of_a_cancelled_job(app: App) -> None:
    with manual(app) as jobs:
        job = task(app, "top").enqueue([13])
        jobs.drain()
        app.client.cancel(job.id)

        jobs.drain()

        assert {one.state for one in app.client.jobs()} == {JobState.CANCELLED}


def test_drain_completes_a_parent_in_its_own_transaction(app: App, tmp_path: Path) -> None:
    with manual(app, database_url=f"sqlite:///{tmp_path}/test.db") as jobs:
        job = task(app, "in_a_transaction").enqueue()
        jobs.drain()

        assert job.result() == "done"
        assert job.children().completed == 1


def test_inline_children_run_where_they_are_submitted(app: App) -> None:
    with inline(app):
        job = task(app, "topmost").enqueue()

        assert job.result() == "done"
        assert sorted(child.result for child in app.client.jobs(parent_id=job.id)) == [3, 3]


def test_inline_children_run_in_a_coroutine(app: App) -> None:
    async def run() -> str:
        job = await task(app, "topmost").enqueue_async()
        result: str = await job.result_async()
        return result

    with inline(app):
        assert asyncio.run(run()) == "done"
        assert {one.state for one in app.client.jobs()} == {JobState.COMPLETED}


def test_inline_an_exception_of_a_child_is_raised_in_its_parent(app: App) -> None:
    with inline(app) as jobs:
        with pytest.raises(Permanent, match="too small"):
            task(app, "top").enqueue([1, -1])

        [parent] = jobs.enqueued(task(app, "top"))
        assert (parent.state, parent.job.error) == (JobState.FAILED, "Permanent: too small")


def test_inline_children_of_a_lent_transaction_run_when_it_commits(app: App, tmp_path: Path) -> None:
    with inline(app, database_url=f"sqlite:///{tmp_path}/test.db"):
        job = task(app, "in_a_transaction").enqueue()

        assert job.result() == "done"
        assert job.children().completed == 1


def test_inline_a_snoozed_child_is_drained(app: App) -> None:
    with inline(app) as jobs:
        job = task(app, "patient").enqueue()
        assert app.client.job(job.id).state is JobState.WAITING

        jobs.drain(until=HOUR)

        assert job.result() == 0
