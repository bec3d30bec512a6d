"""Jobs of one worker share its loop, and coroutines that end at once even a task; nothing of one reaches another."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import timedelta

import msgspec
import pytest

from stagepost import App, JobState, RetryPolicy, Worker
from stagepost.worker import executor
from tests.acceptance.helpers import AT_ONCE, LIMIT, work

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

tenant = contextvars.ContextVar("tenant", default="none")


def test_context_variables_that_a_handler_sets_are_invisible_to_other_jobs(app: App) -> None:
    seen: list[str] = []

    @app.task
    async def set_here(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)

    @app.task
    async def set_and_wait(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)
        await asyncio.sleep(0)
        seen.append("none" if tenant.get() == name else "lost")

    @app.task
    def set_in_thread(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)

    for name in ("a", "b", "c"):
        for task in (set_here, set_and_wait, set_in_thread):
            task.enqueue(name)
    work(app, concurrency=1)

    assert seen == ["none"] * 12


def test_a_handler_that_cancels_its_task_and_returns_stops_no_other(app: App) -> None:
    @app.task
    async def cancel_and_return() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    @app.task(retry=AT_ONCE)
    async def wait() -> None:
        await asyncio.sleep(0)

    jobs = [task.enqueue() for _ in range(5) for task in (cancel_and_return, wait)]
    worker = work(app, concurrency=1)

    assert {app.client.job(job.id).state for job in jobs} == {JobState.COMPLETED}
    assert {app.client.job(job.id).failures for job in jobs} == {0}
    assert (worker.finisher.settled, worker.finisher.lost) == (10, 0)


def test_a_coroutine_that_waited_had_a_task_that_no_later_job_gets(app: App) -> None:
    tasks: list[asyncio.Task[None] | None] = []

    @app.task
    async def wait() -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)

    for _ in range(5):
        wait.enqueue()
    work(app, concurrency=1)

    assert len(set(tasks)) == 5


def test_jobs_that_never_await_let_the_event_loop_run(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "LONGEST_TURN_SECONDS", 0.0)
    turns = 0
    seen: list[int] = []

    def count() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(count)

    @app.task
    async def look() -> None:
        if not turns:
            count()
        seen.append(turns)

    for _ in range(5):
        look.enqueue()
    work(app, concurrency=1)

    assert len(set(seen)) == 5


async def test_every_slot_is_used_whether_jobs_await_or_not(app: App) -> None:
    everybody = asyncio.Barrier(20)
    threads = threading.Barrier(20)

    @app.task
    async def meet() -> None:
        await everybody.wait()

    @app.task
    def meet_in_thread() -> None:
        threads.wait(LIMIT)

    jobs = [meet.enqueue() for _ in range(20)] + [meet_in_thread.enqueue() for _ in range(20)]
    async with asyncio.timeout(LIMIT):
        await Worker(app, concurrency=20).run(until_idle=True)

    assert {app.client.job(job.id).state for job in jobs} == {JobState.COMPLETED}


async def test_a_thread_left_behind_keeps_its_slot_until_it_returns(app: App) -> None:
    gate, ran = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.task(timeout=timedelta(milliseconds=10), retry=RetryPolicy(max_attempts=1))
    def hang() -> None:
        gate.wait(LIMIT)

    @app.task
    def follow() -> None:
        loop.call_soon_threadsafe(ran.set)

    app.settings = msgspec.structs.replace(app.settings, prefetch=1)
    hang.enqueue()
    follow.enqueue()
    worker = Worker(app, concurrency=1)
    threads = worker.executor.threads
    working = asyncio.create_task(worker.run(until_idle=True))
    async with asyncio.timeout(LIMIT):
        while not threads.stuck:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
        in_use = threads.stuck + threads._busy
        gate.set()
        await ran.wait()
        await working

    assert (in_use, threads.stuck) == (1, 0)
