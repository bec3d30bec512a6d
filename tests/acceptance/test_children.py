"""Parents and children through the public interface, with real workers, on each database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stagepost import App, JobContext, JobState, Permanent, Worker, traced
from stagepost.client.context import JobContext as Context
from stagepost.client.running import RunningAttempt
from stagepost.errors import ConfigurationError, JobFailed, TaskError
from stagepost.model.context import TraceContext
from stagepost.model.options import TaskOptions
from stagepost.store.leases import claim
from stagepost.task import Task
from tests.acceptance.helpers import AT_ONCE, LIMIT, notes, work, write
from tests.conformance.bench import Colour, connect_async


def test_a_job_ends_after_its_children(app: App) -> None:
    @app.task
    def square(number: int) -> int:
        return number * number

    @app.task
    def squares(job: JobContext, count: int) -> str:
        for number in range(count):
            job.submit(square, number)
        return "all squared"

    job = squares.enqueue(5)
    work(app)

    assert job.result(timeout=1) == "all squared"
    assert app.client.job(job.id).state is JobState.COMPLETED
    counts = job.children()
    assert (counts.completed, counts.total) == (5, 5)
    assert len(app.client.jobs(parent_id=job.id)) == 5


def test_a_continuation_reads_the_childrens_results(app: App) -> None:
    @app.task
    async def square(number: int) -> int:
        if number == 2:
            raise Permanent("two is too much")
        return number * number

    @app.task
    def add_up(job: JobContext, start: int) -> int:
        children = sorted(job.children(square), key=lambda child: child.key)
        assert [child.state for child in children] == [JobState.COMPLETED, JobState.COMPLETED, JobState.FAILED]
        assert children[2].error == "Permanent: two is too much"
        return start + sum(child.result for child in children if child.result is not None)

    @app.task
    async def squares(job: JobContext, count: int) -> int:
        for number in range(count):
            await job.submit_async(square, number)
        return job.then(add_up, 41)

    job = squares.enqueue(3)
    work(app)

    assert job.result(timeout=1) == 42
    ended = app.client.job(job.id)
    assert (ended.state, ended.task, ended.attempt) == (JobState.COMPLETED, add_up.name, 2)


def test_children_are_read_without_blocking_the_loop(app: App) -> None:
    @app.task
    def leaf(number: int) -> int:
        return number

    @app.task
    async def add_up(job: JobContext) -> int:
        return sum([child.result or 0 async for child in job.children_async(leaf)])

    @app.task
    async def top(job: JobContext) -> int:
        await job.submit_many_async([leaf.job(1), leaf.item("two", 2)])
        await job.using(key="three", priority=3).submit_async(leaf, 3)
        return job.then(add_up)

    async def run() -> tuple[int, int]:
        handle = await top.enqueue_async()
        worker = Worker(app)
        async with asyncio.timeout(LIMIT):
            await worker.run(until_idle=True)
        return await handle.result_async(timeout=1), (await handle.children_async()).total

    assert asyncio.run(run()) == (6, 3)


def test_many_children_are_read_page_by_page(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagepost.client.children.PAGE", 3)
    monkeypatch.setattr("stagepost.client.children.CHUNK", 4)

    @app.task
    def leaf(number: int) -> int:
        return number

    @app.task
    def other() -> None: ...

    @app.task
    def gather(job: JobContext) -> list[int]:
        return sorted(child.result for child in job.children(leaf) if child.result is not None)

    @app.task
    def top(job: JobContext) -> list[int]:
        assert len(job.submit_many(leaf.job(number) for number in range(10))) == 10
        job.submit(other)
        return job.then(gather)

    job = top.enqueue()
    work(app)

    assert job.result(timeout=1) == list(range(10))


def test_a_failed_child_fails_a_parent_that_says_so(app: App) -> None:
    @app.task
    def leaf(number: int) -> None:
        raise Permanent(f"not {number}")

    @app.task(on_child_failed="fail")
    def top(job: JobContext) -> None:
        job.submit_many([leaf.job(1), leaf.job(2)])

    job = top.enqueue()
    work(app)

    with pytest.raises(JobFailed, match="ended as failed: of 2 children 2 failed"):
        job.result(timeout=1)
    with pytest.raises(ConfigurationError, match="on_child_failed is 'ignore'"):
        app.task(on_child_failed="ignore")  # type: ignore[call-overload]


def test_an_attempt_that_fails_and_is_retried_submits_no_child_twice(app: App) -> None:
    ran: list[int] = []

    @app.task
    def leaf(number: int) -> None:
        ran.append(number)

    @app.task(retry=AT_ONCE)
    def top(job: JobContext) -> None:
        handles = [job.submit(leaf, number) for number in range(3)]
        assert all(handle.is_new == (job.attempt == 1) for handle in handles)
        if job.attempt == 1:
            raise OSError("after all")

    job = top.enqueue()
    work(app)

    assert sorted(ran) == [0, 1, 2]
    assert app.client.job(job.id).state is JobState.COMPLETED


def test_children_are_submitted_and_the_job_completed_in_one_transaction(app: App) -> None:
    @app.task
    def leaf(number: int) -> int:
        return number

    @app.task(retry=AT_ONCE)
    def top(job: JobContext) -> str | None:
        with app.transaction() as tx:
            write(tx, "effect")
            job.using(tx, key="a").submit(leaf, 1)
            job.submit_many([leaf.item("b", 2)], tx=tx)
            if job.attempt == 1:
                raise OSError("not this time")
            job.complete(tx, "in the transaction")
        return None

    job = top.enqueue()
    work(app)

    assert notes(app) == ["effect"]
    ended = app.client.job(job.id)
    assert (ended.state, ended.result) == (JobState.COMPLETED, "in the transaction")
    assert (job.children().completed, job.children().total) == (2, 2)


def test_children_are_submitted_in_an_async_transaction(app: App, database: Any) -> None:
    @app.task
    def leaf(number: int) -> int:
        return number

    @app.task
    async def top(job: JobContext) -> None:
        tx = await connect_async(database.url, Colour.ASYNC)
        await job.using(tx, key="a").submit_async(leaf, 1)
        await job.complete_async(tx, None)
        await tx.commit()
        closing = tx.close()
        if closing is not None:
            await closing

    job = top.enqueue()
    work(app)

    assert app.client.job(job.id).state is JobState.COMPLETED
    assert job.children().completed == 1


def test_ids_travel_from_parent_to_child(app: App) -> None:
    @app.task
    def leaf() -> None: ...

    @app.task
    def top(job: JobContext) -> None:
        job.submit(leaf)

    with traced(correlation_id="order-7"):
        job = top.enqueue()
    work(app)

    [child] = app.client.jobs(parent_id=job.id)
    assert child.trace == TraceContext(correlation_id="order-7", parent_id=job.id)


@pytest.mark.usefixtures("quick_renewals")
def test_families_nest_and_cancelling_takes_the_whole_tree(app: App) -> None:
    started: list[str] = []
    stopped: list[str] = []
    all_run = asyncio.Event()

    @app.task
    async def leaf(name: str) -> None:
        started.append(name)
        if len(started) == 4:
            all_run.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(name)
            raise

    @app.task
    def middle(job: JobContext, name: str) -> None:
        job.submit(leaf, f"{name}.0")
        job.submit(leaf, f"{name}.1")

    @app.task
    def top(job: JobContext) -> None:
        job.submit(middle, "0")
        job.submit(middle, "1")

    job = top.enqueue()

    async def cancel_when_all_run() -> None:
        worker = Worker(app, concurrency=8)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(LIMIT):
            await all_run.wait()
            await app.client.cancel_async(job.id)
            with pytest.raises(JobFailed, match="ended as cancelled"):
                await job.result_async()
            worker.stop()
            await running

    asyncio.run(cancel_when_all_run())

    assert sorted(stopped) == ["0.0", "0.1", "1.0", "1.1"]
    assert {one.state for one in app.client.jobs()} == {JobState.CANCELLED}
    assert len(app.client.jobs()) == 7


def test_an_invalid_child_is_refused(app: App) -> None:
    @app.task
    def leaf() -> None: ...

    @app.task
    def top(job: JobContext) -> None:
        with pytest.raises(ConfigurationError, match="leave out `id` and `unique_key`"):
            job.using(id="1", key="a")
        with pytest.raises(ConfigurationError, match=r"Use `task\.item"):
            job.submit_many([leaf.using(unique_key="one").job()])
        with pytest.raises(ConfigurationError, match="1 to 191"):
            job.using(key="").submit(leaf)

    job = top.enqueue()
    work(app)

    assert app.client.job(job.id).state is JobState.COMPLETED
    assert job.children().total == 0


def test_a_context_without_an_app_has_no_children(app: App) -> None:
    @app.task
    def leaf() -> None: ...

    leaf.enqueue()
    [leased] = app.store.run(
        claim("default", owner="me", task_names=[leaf.name], slots=1, lease=app.settings.lease_duration)
    )
    alone: Task[..., Any] = Task(leaf.function, name="alone", options=TaskOptions(), wants_context=False)

    with pytest.raises(TaskError, match="belongs to no app"):
        Context(RunningAttempt(leased, alone, app.clock)).submit(leaf)
