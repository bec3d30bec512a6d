"""Progress that handlers report, wherever they run, is visible while they run."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, JobContext, JobState, Permanent
from stagepost.client.running import RunningAttempt
from stagepost.errors import ConfigurationError, JobFailed, JobNotFound, PayloadError
from stagepost.model.identity import new_id
from stagepost.store.leases import claim
from stagepost.worker.lease_keeper import LeaseKeeper
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from tests.acceptance import process_tasks
from tests.acceptance.conftest import quick_settings
from tests.acceptance.helpers import AT_ONCE, LIMIT, work, work_async
from tests.acceptance.remote import until, working
from tests.conformance.bench import DatabaseOnBench

LONG_LEASE = 3600.0
"""Renewed so rarely that progress which waits for it is never seen by a test."""


@dataclass
class Rows:
    """What the tasks of these tests report."""

    done: int
    of: int


@pytest.fixture
def app(app: App) -> App:
    app.settings = quick_settings(app.settings.database_url, lease=LONG_LEASE)
    return app


def test_progress_of_a_handler_in_a_thread_is_seen_while_it_runs(app: App) -> None:
    go_on, gone_on, end = threading.Event(), threading.Event(), threading.Event()

    @app.task(progress=Rows)
    def load(job: JobContext) -> str:
        job.report(Rows(1, 10))
        go_on.wait(LIMIT)
        for done in range(2, 6):
            job.report(Rows(done, 10))
        gone_on.set()
        end.wait(LIMIT)
        return "loaded"

    job = load.enqueue()
    assert job.progress() is None
    with working(app):
        until(lambda: job.progress() == Rows(1, 10), "the first report")
        go_on.set()
        gone_on.wait(LIMIT)
        until(lambda: job.progress() == Rows(5, 10), "the last report")
        end.set()
        assert job.result(timeout=LIMIT) == "loaded"

    assert job.progress() is None


async def test_progress_of_a_coroutine_is_seen_while_it_runs(app: App) -> None:
    end = asyncio.Event()

    @app.task
    async def load(job: JobContext) -> None:
        job.report({"rows": 3, "of": [10, 20]})
        await end.wait()

    job = await load.enqueue_async()
    worker = asyncio.create_task(work_async(app))
    async with asyncio.timeout(LIMIT):
        while await job.progress_async() is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # it is another thread that writes it
        assert await job.progress_async() == {"rows": 3, "of": [10, 20]}
        end.set()
        await worker

    assert await job.progress_async() is None


@pytest.fixture
def process_app(database: DatabaseOnBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """The app of the tasks' module, on each database."""
    database.empty()
    monkeypatch.setenv("STAGEPOST_DATABASE_URL", database.url)
    monkeypatch.setattr(process_tasks.app, "settings", quick_settings(database.url, lease=LONG_LEASE))
    yield process_tasks.app
    process_tasks.app.close()


def test_progress_of_a_process_is_seen_while_it_runs(process_app: App, tmp_path: Path) -> None:
    gates = [tmp_path / "first", tmp_path / "second"]
    jobs = [process_tasks.tell.enqueue(number, str(gate)) for number, gate in enumerate(gates, 1)]

    with working(process_app):
        reports = [process_tasks.Told(9_999, number) for number in (1, 2)]
        until(lambda: [job.progress() for job in jobs] == reports, "the last reports")
        for gate in gates:
            gate.touch()
        assert [job.result(timeout=LIMIT) for job in jobs] == [1, 2]


def test_progress_is_written_once_and_later_if_its_row_is_locked(app: App) -> None:
    @app.task
    def load(job: JobContext) -> None: ...

    job, lease = load.enqueue(), timedelta(minutes=1)
    [leased] = app.store.run(claim("default", owner="worker-a", task_names=[load.name], slots=1, lease=lease))
    running, attempts = RunningAttempt(leased, load, app.clock), LeasedAttempts()
    attempts.add([LeasedAttempt(leased, lease_ends=float("inf"), running=running)])
    loop = asyncio.new_event_loop()
    keeper = LeaseKeeper(app.store, attempts, owner="worker-a", lease=lease, clock=app.clock, loop=loop)
    loop.close()
    assert keeper.report_once() is None

    JobContext(running).report(1)
    if app.store.dialect.has_row_locks:  # where there are none, nobody could even ask
        with app.transaction() as tx, contextlib.closing(tx.cursor()) as cursor:
            cursor.execute(f"update stagepost_job set priority = 8 where id = '{job.id}'")
            assert keeper.report_once() is not None
        assert job.progress() is None
    assert keeper.report_once() is not None

    assert job.progress() == 1
    assert keeper.report_once() is None


def test_a_retry_begins_without_progress(app: App) -> None:
    seen, second, end = threading.Event(), threading.Event(), threading.Event()

    @app.task(retry=AT_ONCE)
    def load(job: JobContext) -> None:
        if job.attempt == 1:
            job.report(0.9)
            seen.wait(LIMIT)
            raise OSError("the connection broke")
        second.set()
        end.wait(LIMIT)

    job = load.enqueue()
    with working(app):
        until(lambda: job.progress() == 0.9, "the report")
        seen.set()
        assert second.wait(LIMIT)
        assert (app.client.job(job.id).state, job.progress()) == (JobState.RUNNING, None)
        end.set()
        job.result(timeout=LIMIT)


def test_jobs_that_end_before_their_progress_is_written_end_all_the_same(app: App) -> None:
    ended: list[int] = []

    @app.task
    def quick(job: JobContext, number: int) -> None:
        job.report(number)
        ended.append(number)

    jobs = [quick.enqueue(number) for number in range(200)]
    worker = work(app)

    assert (len(ended), worker.parts.finisher.settled, worker.parts.finisher.lost) == (200, 200, 0)
    assert {job.progress() for job in jobs} == {None}


@pytest.mark.parametrize(
    ("progress", "complaint"),
    [
        (object(), "the progress of type object cannot be stored as JSON"),
        (
            "x" * 10_239,
            "progress: 10,241 bytes of JSON; the limit is 10,240. Store large values elsewhere and pass a key.",
        ),
        (None, "progress is None. Report a value"),
        ({"done": "many"}, "progress of type dict does not fit the declared type `Rows`"),
    ],
)
def test_invalid_progress_is_an_error_where_it_is_reported(app: App, progress: Any, complaint: str) -> None:
    @app.task(progress=Rows, retry=AT_ONCE)
    def load(job: JobContext) -> None:
        try:
            job.report(progress)
        except PayloadError as error:
            raise Permanent(str(error)) from error

    job = load.enqueue()
    work(app)

    with pytest.raises(JobFailed, match=re.escape(complaint)):
        job.result(timeout=0)


def test_a_progress_type_without_a_json_form_is_refused_when_the_task_is_declared() -> None:
    app = App("sqlite://")

    with pytest.raises(ConfigurationError, match="progress is Event, which cannot be decoded from JSON"):
        app.task(progress=threading.Event)


def test_progress_of_a_job_that_does_not_exist_is_an_error(app: App) -> None:
    with pytest.raises(JobNotFound):
        app.job(new_id()).progress()


def test_progress_is_asked_for_without_knowing_the_task(app: App, database: DatabaseOnBench) -> None:
    end = threading.Event()

    @app.task(progress=Rows)
    def load(job: JobContext) -> None:
        job.report(Rows(2, 3))
        end.wait(LIMIT)

    job = load.enqueue()
    stranger = App(settings=quick_settings(database.url))
    with working(app):
        until(lambda: stranger.job(job.id).progress() == {"done": 2, "of": 3}, "the report")
        end.set()
        job.result(timeout=LIMIT)
    stranger.close()
