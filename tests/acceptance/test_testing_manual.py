"""Tests of applications that keep their jobs until they drain them, with their own clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stagepost import (
    App,
    JobContext,
    JobState,
    RateLimit,
    RetryPolicy,
    Snooze,
    StagepostError,
    Worker,
    current_job,
)
from stagepost.errors import ConfigurationError, WaitTimeout
from stagepost.testing import Manual, ManualClock, manual

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/production.db")


@pytest.fixture
def jobs(app: App) -> Iterator[Manual]:
    with manual(app, clock=ManualClock(NOON)) as mode:
        yield mode


def test_a_job_runs_when_it_is_drained_and_not_before(app: App, jobs: Manual) -> None:
    ran: list[str] = []

    @app.task(name="greet")
    def greet(name: str) -> int:
        ran.append(name)
        return len(name)

    handle = greet.enqueue("Ann")
    assert ran == []

    drained = jobs.drain()

    assert ran == ["Ann"]
    assert [(run.task, run.attempt, run.state) for run in drained.runs] == [("greet", 1, JobState.COMPLETED)]
    assert (drained.completed, drained.failed, drained.left) == (1, (), {})
    assert handle.result() == 3


def test_draining_goes_on_until_nothing_is_due(app: App, jobs: Manual) -> None:
    @app.task
    async def count_down(number: int) -> None:
        if number:
            await count_down.enqueue_async(number - 1)

    count_down.enqueue(3)

    assert jobs.drain().completed == 4


def test_plain_tasks_run_in_threads_and_async_ones_on_the_loop_as_in_a_worker(app: App, jobs: Manual) -> None:
    threads: dict[str, int] = {}

    @app.task
    def plain() -> None:
        threads["plain"] = threading.get_ident()

    @app.task
    async def asynchronous(job: JobContext) -> None:
        assert current_job() is job
        threads["asynchronous"] = threading.get_ident()

    plain.enqueue()
    asynchronous.enqueue()
    jobs.drain().raise_if_failed()

    assert threads["plain"] != threading.get_ident() == threads["asynchronous"]


def test_jobs_run_one_after_the_other_by_priority_and_age(app: App, jobs: Manual) -> None:
    order: list[str] = []

    @app.task
    def note(name: str) -> None:
        order.append(name)

    note.enqueue("first")
    note.enqueue("second")
    note.using(priority=5).enqueue("urgent")
    jobs.drain()

    assert order == ["urgent", "first", "second"]


def test_a_retry_runs_when_the_clock_says_so(app: App, jobs: Manual) -> None:
    tries: list[int] = []

    @app.task(retry=RetryPolicy(first_delay=MINUTE, jitter=0))
    def flaky(job: JobContext) -> None:
        tries.append(job.attempt)
        if job.attempt == 1:
            raise OSError("no network")

    flaky.enqueue()

    first = jobs.drain()
    assert [run.error for run in first.failed] == ["OSError: no network"]
    assert first.left == {JobState.RETRYING: 1}
    with pytest.raises(AssertionError, match=r"(?s)1 of 1 attempts failed.*no network"):
        first.raise_if_failed()

    jobs.clock.advance(59)
    assert jobs.drain().runs == ()

    jobs.clock.advance(1)
    assert jobs.drain().completed == 1
    assert tries == [1, 2]


def test_draining_until_a_time_moves_the_clock_from_one_due_time_to_the_next(app: App, jobs: Manual) -> None:
    ran_at: list[int] = []

    @app.task(retry=RetryPolicy(first_delay=MINUTE, factor=2, jitter=0, max_attempts=3))
    def hopeless() -> None:
        ran_at.append((jobs.clock.instant() or 0) // 1_000_000 - int(NOON.timestamp()))
        raise OSError("no network")

    handle = hopeless.enqueue()

    drained = jobs.drain(until=timedelta(hours=1))

    assert ran_at == [0, 60, 180]
    assert [run.state for run in drained.runs] == [JobState.RETRYING, JobState.RETRYING, JobState.DEAD_LETTER]
    assert app.client.job(handle.id).state is JobState.DEAD_LETTER
    assert jobs.clock.instant() == (NOON + timedelta(hours=1)).timestamp() * 1_000_000


def test_schedules_fire_by_the_tests_clock(app: App) -> None:
    runs: list[int] = []

    @app.task
    def report() -> None:
        runs.append(1)

    app.schedule("hourly", "0 * * * *", report.job())
    with manual(app, clock=ManualClock(NOON)) as jobs:
        assert jobs.drain().runs == ()

    with manual(app, clock=ManualClock(NOON)) as jobs:
        jobs.clock.advance(timedelta(minutes=61))
        assert jobs.drain().completed == 1

        jobs.drain(until=NOON + timedelta(hours=3))

    assert len(runs) == 3


def test_snoozed_delayed_and_limited_jobs_run_when_they_are_due(app: App, jobs: Manual) -> None:
    ran: list[str] = []

    @app.task
    def later(name: str) -> None:
        ran.append(name)
        if ran == ["snoozed"]:
            raise Snooze(MINUTE)

    @app.task(max_running=1, queue="limited")
    def single(name: str) -> None:
        ran.append(name)

    later.using(delay=30).enqueue("delayed")
    later.enqueue("snoozed")
    single.enqueue("one")
    single.enqueue("two")
    jobs.drain()
    assert ran == ["snoozed", "one", "two"]

    jobs.drain(until=MINUTE)
    assert ran[3:] == ["delayed", "snoozed"]


def test_a_rate_limit_waits_for_the_tests_clock_and_not_for_real_time(app: App, jobs: Manual) -> None:
    @app.task(rate_limit=RateLimit("provider", per_second=2, burst=1))
    def call() -> None: ...

    app.enqueue_many([call.job() for _ in range(3)])

    assert jobs.drain().completed == 1
    assert jobs.drain(until=MINUTE).completed == 2


def test_many_jobs_of_one_task_are_kept_and_drained(app: App, jobs: Manual) -> None:
    @app.task
    def note(number: int) -> int:
        return number

    handles = note.enqueue_many([(number,) for number in range(150)])

    assert len(jobs.assert_enqueued(note, count=150)) == 150
    assert jobs.drain().completed == 150
    assert [handle.result() for handle in handles] == list(range(150))


def test_a_job_in_a_queue_of_its_own_is_drained_unless_queues_are_named(app: App, jobs: Manual) -> None:
    @app.task
    def note() -> None: ...

    note.using(queue="side").enqueue()

    assert jobs.drain(queues=["default"]).runs == ()
    assert jobs.drain().completed == 1


def test_a_task_for_a_process_runs_in_this_one_where_the_test_can_see_it(app: App, jobs: Manual) -> None:
    seen: list[str] = []

    @app.task(pool="process")
    def crunch(job: JobContext) -> int:
        seen.append(current_job().id)
        return 42

    handle = crunch.enqueue()
    jobs.drain().raise_if_failed()

    assert seen == [handle.id]
    assert handle.result() == 42


def test_drain_reports_a_job_that_its_handler_ended_in_its_own_transaction(app: App, jobs: Manual) -> None:
    @app.task
    def refund(job: JobContext) -> None:
        with app.transaction() as tx:
            job.snooze(tx, MINUTE)

    refund.enqueue()

    assert [run.state for run in jobs.drain().runs] == [JobState.SCHEDULED]


def test_a_task_that_enqueues_itself_for_ever_does_not_hang_the_test(
    app: App, jobs: Manual, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stagepost.testing.drainer.MOST_RUNS", 20)

    @app.task
    def again() -> None:
        again.enqueue()

    again.enqueue()

    with pytest.raises(StagepostError, match="Does a task enqueue itself forever"):
        jobs.drain()


async def test_async_tests_drain_on_their_own_loop(app: App, jobs: Manual) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @app.task
    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    await note.enqueue_async()
    with pytest.raises(ConfigurationError, match="await drain_async"):
        jobs.drain()

    drained = await jobs.drain_async()

    assert drained.completed == 1
    assert loops == [asyncio.get_running_loop()]


async def test_waiting_for_a_job_that_nothing_runs_says_so_at_once(app: App, jobs: Manual) -> None:
    @app.task(name="greet")
    def greet() -> None: ...

    handle = greet.enqueue()

    with pytest.raises(WaitTimeout, match="of greet is queued: in this test, it runs when you call drain"):
        handle.result()
    with pytest.raises(WaitTimeout, match="drain"):
        await handle.result_async(timeout=MINUTE)


def test_the_apps_own_database_is_left_alone_and_back_in_place_afterwards(app: App, tmp_path: Path) -> None:
    @app.task
    def greet() -> None: ...

    url, clock = app.settings.database_url, app.clock
    with manual(app) as jobs:
        greet.enqueue()
        with app.transaction() as tx:
            greet.using(tx).enqueue()
        assert jobs.drain().completed == 2

    assert not (tmp_path / "production.db").exists()
    assert (app.settings.database_url, app.clock) == (url, clock)
    greet.enqueue()
    assert (tmp_path / "production.db").exists()
    app.close()


def test_jobs_can_be_kept_in_a_file(app: App, tmp_path: Path) -> None:
    @app.task
    def greet() -> None: ...

    with manual(app, database_url=f"sqlite:///{tmp_path}/test.db") as jobs:
        greet.enqueue()

        assert jobs.drain().completed == 1


async def test_a_real_worker_can_use_a_manual_clock(app: App, jobs: Manual) -> None:
    ran: list[str] = []

    @app.task
    async def note(name: str) -> None:
        ran.append(name)

    note.enqueue("now")
    note.using(delay=MINUTE).enqueue("later")

    await Worker(app).run(until_idle=True)
    assert ran == ["now"]

    jobs.clock.advance(MINUTE)
    await Worker(app).run(until_idle=True)
    assert ran == ["now", "later"]
