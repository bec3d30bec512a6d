"""A worker inside an application: it starts or says why not, runs beside other code, and ends with its block."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, JobState, StagepostError, Worker
from stagepost.errors import ConfigurationError, SchemaError, StoreUnavailable
from stagepost.upkeep.promoter import Promoter
from tests.acceptance.conftest import quick_settings
from tests.acceptance.helpers import LIMIT
from tests.conformance.bench import DatabaseOnBench
from tests.services.postgres import PostgresServer

DURABILITY = "is off: "
"""Part of the warnings about the settings of a test server, which is quick because it forces nothing to disk."""


@pytest.fixture
def shop(on_postgres: DatabaseOnBench) -> Iterator[App]:
    """An app on one database, for what does not depend on it."""
    app = App(settings=quick_settings(on_postgres.url))
    yield app
    app.close()


def add_task(app: App) -> None:
    """A worker needs at least one task."""

    @app.task
    def handle() -> None: ...


class Boom(Exception):
    """Raised by the body."""


async def test_a_worker_runs_beside_the_body_and_finishes_running_jobs_when_it_leaves(app: App) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow(number: int) -> int:
        started.set()
        await may_end.wait()
        return number

    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with asyncio.timeout(LIMIT):
        async with Worker(app, concurrency=1) as worker:
            was_running = worker.is_running
            first, second = await slow.enqueue_async(1), await slow.enqueue_async(2)
            await started.wait()
            asyncio.get_running_loop().call_soon(may_end.set)

    assert (was_running, worker.is_running) == (True, False)
    assert await first.result_async(timeout=0) == 1
    assert (await app.client.job_async(second.id)).state in {JobState.QUEUED, JobState.COMPLETED}
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_a_worker_in_a_thread_runs_beside_the_body_and_finishes_running_jobs_when_it_leaves(app: App) -> None:
    started, may_end = threading.Event(), threading.Event()

    @app.task
    def slow(number: int) -> int:
        started.set()
        may_end.wait(LIMIT)
        return number

    before = set(threading.enumerate())
    with Worker(app, concurrency=1) as worker:
        was_running = worker.is_running
        job = slow.enqueue(1)
        assert started.wait(LIMIT)
        assert any(thread.name.startswith("stagepost-worker-") for thread in threading.enumerate())
        threading.Timer(0.05, may_end.set).start()

    assert (was_running, worker.is_running) == (True, False)
    assert job.result(timeout=0) == 1
    assert not [thread for thread in set(threading.enumerate()) - before if "stagepost-worker" in thread.name]


async def test_jobs_that_outlast_the_shutdown_timeout_return_to_their_queue_when_the_body_raises(shop: App) -> None:
    started = asyncio.Event()

    @shop.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        async with asyncio.timeout(LIMIT), Worker(shop, shutdown_timeout=0):
            await started.wait()
            raise Boom

    job = endless.enqueue()
    with pytest.raises(Boom):
        await serve()

    returned = shop.client.job(job.id)
    assert (returned.state, returned.failures, returned.crashes, returned.worker) == (JobState.QUEUED, 0, 0, None)


def test_a_body_that_raises_ends_the_worker_in_its_thread(shop: App) -> None:
    started, stopped = threading.Event(), threading.Event()

    @shop.task
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    job = endless.enqueue()
    with pytest.raises(KeyboardInterrupt), Worker(shop, shutdown_timeout=0):  # noqa: PT012 - the body is the point
        assert started.wait(LIMIT)
        raise KeyboardInterrupt

    assert stopped.is_set()
    assert shop.client.job(job.id).state is JobState.QUEUED


async def test_a_cancelled_body_ends_the_worker_and_a_second_cancel_hurries_it(shop: App) -> None:
    started, leaving = asyncio.Event(), asyncio.Event()

    @shop.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        async with Worker(shop, shutdown_timeout=10 * LIMIT):
            try:
                await asyncio.Event().wait()
            finally:
                leaving.set()

    job = endless.enqueue()
    async with asyncio.timeout(LIMIT):
        serving = asyncio.create_task(serve())
        await started.wait()
        serving.cancel()
        await leaving.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    assert shop.client.job(job.id).state is JobState.QUEUED


async def test_two_workers_run_in_one_process(shop: App) -> None:
    both = asyncio.Barrier(2)

    @shop.task(queue="mail")
    async def mail() -> None:
        await both.wait()

    @shop.task(queue="video")
    async def video() -> None:
        await both.wait()

    async with asyncio.timeout(LIMIT):
        async with (
            Worker(shop, queues=["mail"], concurrency=1) as one,
            Worker(shop, queues=["video"], concurrency=1) as two,
        ):
            jobs = [await mail.enqueue_async(), await video.enqueue_async()]
            for job in jobs:
                await job.wait_async(timeout=LIMIT)
    assert {shop.client.job(job.id).state for job in jobs} == {JobState.COMPLETED}
    assert one.owner != two.owner


@pytest.fixture(params=["async with", "with"])
def enter(request: pytest.FixtureRequest) -> Any:
    """Enters and leaves a worker, in each way, and calls a function in between."""

    def entered(worker: Worker, body: Any = lambda: None) -> None:
        if request.param == "with":
            with worker:
                body()
            return

        async def main() -> None:
            async with worker:
                await asyncio.to_thread(body)

        asyncio.run(main())

    return entered


def test_a_worker_without_tables_does_not_start(postgres_server: PostgresServer, enter: Any) -> None:
    app = App(settings=quick_settings(postgres_server.fresh_database()))
    add_task(app)
    before = threading.active_count()

    with pytest.raises(SchemaError, match="stagepost migrate"):
        enter(Worker(app), pytest.fail)
    app.close()
    assert threading.active_count() <= before + 1  # a thread of the store that ends by itself


def test_a_worker_without_a_database_does_not_start(enter: Any) -> None:
    app = App("postgresql://127.0.0.1:1/nothing")
    add_task(app)
    worker = Worker(app)
    app.store.patience_seconds = 0.5

    with pytest.raises(StoreUnavailable):
        enter(worker, pytest.fail)
    app.close()


def test_a_worker_whose_start_hook_fails_does_not_start(shop: App, enter: Any) -> None:
    add_task(shop)

    @shop.on_worker_start
    def start() -> None:
        raise Boom("no model file")

    with pytest.raises(Boom, match="no model file"):
        enter(Worker(shop), pytest.fail)


def test_start_and_stop_hooks_run_with_the_block(shop: App, enter: Any) -> None:
    add_task(shop)
    seen: list[str] = []
    shop.on_worker_start(lambda: seen.append("start"))
    shop.on_worker_stop(lambda: seen.append("stop"))

    enter(Worker(shop), lambda: seen.append("body"))

    assert seen == ["start", "body", "stop"]


def test_a_worker_starts_only_once(shop: App, enter: Any) -> None:
    add_task(shop)
    worker = Worker(shop)
    enter(worker)

    with pytest.raises(ConfigurationError, match=r"a worker starts only once\. Create another with Worker\(app, …\)"):
        enter(worker, pytest.fail)
    with pytest.raises(ConfigurationError, match="a worker starts only once"):
        asyncio.run(worker.run())


def test_a_worker_that_is_entered_twice_still_ends_with_its_first_block(shop: App) -> None:
    add_task(shop)
    worker = Worker(shop)
    with worker:
        with pytest.raises(ConfigurationError, match="a worker starts only once"), worker:
            pytest.fail("it has started")
        was_running = worker.is_running

    assert (was_running, worker.is_running) == (True, False)


async def test_a_thread_is_refused_where_an_event_loop_runs(shop: App) -> None:
    add_task(shop)
    message = r"would block the event loop that runs in this thread\. Write `async with Worker\(…\)`\."
    with pytest.raises(ConfigurationError, match=message), Worker(shop):
        pytest.fail("it has started")
    async with asyncio.timeout(LIMIT), Worker(shop) as worker:
        assert worker.is_running


def test_a_worker_in_a_thread_may_be_stopped_by_another_thread(shop: App) -> None:
    add_task(shop)
    with Worker(shop) as worker:
        worker.stop()
        deadline = threading.Event()
        while worker.is_running:
            deadline.wait(0.01)
    assert not worker.is_running


class Dies(BaseException):
    """Ends a loop, as a bug in it would: no handler of ordinary errors catches it."""


def test_a_worker_that_fails_says_so_at_once_and_raises_at_the_end(
    shop: App, enter: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may_die = threading.Event()

    async def run_once(_self: Promoter) -> None:
        if may_die.is_set():
            raise Dies("a bug")

    monkeypatch.setattr(Promoter, "run_once", run_once)
    add_task(shop)
    worker = Worker(shop)
    worker.parts.promoter.interval = 0.01

    def body() -> None:
        assert worker.is_running
        may_die.set()
        pause = threading.Event()
        while "the worker failed, and runs no more jobs in this process" not in caplog.text:
            pause.wait(0.01)
        assert not worker.is_running

    with caplog.at_level(logging.ERROR), pytest.raises(StagepostError, match="the worker's Promoter ended") as raised:
        enter(worker, body)
    assert isinstance(raised.value.__cause__, Dies)


async def test_the_bodys_own_error_is_raised_if_the_worker_failed_as_well(
    shop: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_once(_self: Promoter) -> None:
        raise Dies("a bug")

    monkeypatch.setattr(Promoter, "run_once", run_once)
    add_task(shop)

    async def serve() -> None:
        async with asyncio.timeout(LIMIT), Worker(shop) as worker:
            while worker.is_running:  # noqa: ASYNC110 - the body learns of it only here
                await asyncio.sleep(0.01)
            raise Boom

    with pytest.raises(Boom):
        await serve()


async def test_a_worker_whose_slots_are_all_stuck_raises_at_the_end(shop: App) -> None:
    add_task(shop)

    async def serve() -> None:
        async with asyncio.timeout(LIMIT), Worker(shop) as worker:
            worker.parts.requests.request_restart()

    with pytest.raises(StagepostError, match=r"handlers that did not stop held all slots\. Restart the process\."):
        await serve()


async def test_a_worker_that_is_cancelled_while_it_starts_ends(shop: App) -> None:
    add_task(shop)
    starting, seen = asyncio.Event(), []

    @shop.on_worker_start
    async def start() -> None:
        starting.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        async with Worker(shop):
            seen.append("body")

    async with asyncio.timeout(LIMIT):
        serving = asyncio.create_task(serve())
        await starting.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
    assert seen == []


PROGRAM = """
    import os, sys, threading, warnings
    from stagepost import App, Worker, configure_logging

    app = App()
    started = threading.Event()

    @app.task
    def slow() -> None:
        started.set()
        threading.Event().wait(0.2)
        print("finished", flush=True)

    configure_logging("warning")
"""


def run_program(body: str, folder: Path, database: DatabaseOnBench) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM) + textwrap.dedent(body), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**os.environ, "STAGEPOST_DATABASE_URL": database.url},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_a_program_that_ends_inside_the_block_finishes_its_jobs_and_says_so(
    tmp_path: Path, on_postgres: DatabaseOnBench
) -> None:
    done = run_program(
        """
        Worker(app).__enter__()
        slow.enqueue()
        started.wait()
        """,
        tmp_path,
        on_postgres,
    )

    assert (done.returncode, done.stdout) == (0, "finished\n"), done.stderr
    assert "the program ends while stagepost-worker-" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_process_that_was_forked_from_the_workers_leaves_the_worker_alone(
    tmp_path: Path, on_postgres: DatabaseOnBench
) -> None:
    done = run_program(
        """
        with Worker(app):
            slow.enqueue()
            started.wait()
            warnings.simplefilter("ignore")  # from 3.12 on, Python warns of a fork beside threads
            if (child := os.fork()) == 0:
                with app.transaction():
                    pass
                sys.exit(0)  # leaves the block, and calls what is registered with atexit
            assert os.waitpid(child, 0)[1] == 0
        """,
        tmp_path,
        on_postgres,
    )

    complaints = [line for line in done.stderr.splitlines() if DURABILITY not in line]
    assert (done.returncode, done.stdout, complaints) == (0, "finished\n", [])
