"""Handlers in separate processes, for CPU work and code that may crash."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagepost import App, JobState, Worker, traced
from stagepost.errors import JobFailed
from stagepost.worker.attempt_log import ATTEMPTS
from stagepost.worker.processes import HandlerProcess, ProcessPool
from tests.acceptance import process_tasks
from tests.acceptance.conftest import quick_settings
from tests.acceptance.helpers import LIMIT, notes, work
from tests.conformance.bench import DatabaseOnBench


@pytest.fixture
def app(database: DatabaseOnBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """The app of the tasks' module, on each database."""
    database.empty()
    with database.store.transaction() as connection:
        connection.execute("delete from effect", {})
    monkeypatch.setenv("STAGEPOST_DATABASE_URL", database.url)
    monkeypatch.setattr(process_tasks.app, "settings", quick_settings(database.url))
    yield process_tasks.app
    process_tasks.app.close()


def test_a_process_returns_its_result(app: App) -> None:
    job = process_tasks.cube.enqueue(3)

    work(app)

    result = job.result(timeout=0)
    assert result["cube"] == 27
    assert result["pid"] != os.getpid()


def test_an_exception_in_a_process_fails_its_job(app: App, caplog: pytest.LogCaptureFixture) -> None:
    job = process_tasks.refuse.enqueue("no such address")

    work(app)

    with pytest.raises(JobFailed, match="ended as failed: Permanent: no such address"):
        job.result(timeout=0)
    [failure] = app.client.failures(job.id)
    assert failure.traceback is not None
    assert "raise Permanent(why)" in failure.traceback
    assert "process_main" not in failure.traceback, "the traceback begins in the handler"
    [record] = [record for record in caplog.records if record.name == ATTEMPTS and record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert failure.traceback in "".join(traceback.format_exception(record.exc_info[1]))


def test_a_process_that_dies_is_a_crash_of_its_job_alone(app: App) -> None:
    dying, neighbour = process_tasks.die.enqueue(), process_tasks.cube.enqueue(2)

    work(app)

    dead = app.client.job(dying.id)
    assert (dead.state, dead.crashes, dead.failures) == (JobState.DEAD_LETTER, 3, 0)
    assert "signal 11" in (dead.error or "")
    assert [failure.kind for failure in app.client.failures(dying.id)] == ["crashed"] * 3
    assert neighbour.result(timeout=0)["cube"] == 8


def test_a_process_that_takes_too_long_is_killed_and_its_job_fails(app: App) -> None:
    job = process_tasks.hang.using(max_attempts=1).enqueue()

    work(app)

    failed = app.client.job(job.id)
    assert (failed.state, failed.failures, failed.crashes) == (JobState.DEAD_LETTER, 1, 0)
    assert "took longer than its timeout of 0.5 s" in (failed.error or "")


def test_a_process_ends_its_job_in_its_own_transaction(app: App) -> None:
    with traced(user_id="ada"):
        job = process_tasks.pay.enqueue()

    work(app)

    assert job.result(timeout=0) == "receipt"
    assert notes(app) == ["paid for ada"]


async def test_an_attempt_that_is_over_before_its_process_is_ready_never_starts(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine may be so busy that starting a process takes longer than the timeout."""
    is_over, take = threading.Event(), ProcessPool._take

    def take_late(pool: ProcessPool) -> HandlerProcess:
        assert is_over.wait(LIMIT)
        return take(pool)

    monkeypatch.setattr(ProcessPool, "_take", take_late)
    job = process_tasks.hang.using(max_attempts=1).enqueue()
    worker = Worker(app)
    threads, running = worker.parts.executor.threads, asyncio.create_task(worker.run())

    async with asyncio.timeout(LIMIT):
        while not threads.stuck:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.01)
        is_over.set()
        while threads.stuck:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        worker.stop()
        await running

    assert app.client.job(job.id).state is JobState.DEAD_LETTER


@pytest.mark.usefixtures("quick_renewals")
async def test_cancelling_kills_the_process(app: App) -> None:
    job = process_tasks.sleep.enqueue()
    worker = asyncio.create_task(Worker(app).run(until_idle=True))

    async with asyncio.timeout(LIMIT):
        while (await app.client.job_async(job.id)).state is not JobState.RUNNING:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # it is another process that gets there
        await app.client.cancel_async(job.id)
        await worker

    cancelled = await app.client.job_async(job.id)
    assert (cancelled.state, cancelled.error) == (JobState.CANCELLED, "cancelled on request")
    assert (cancelled.crashes, await app.client.failures_async(job.id)) == (0, [])


def test_a_process_ignores_signals_to_stop_from_its_first_moment_on(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sent to every process at once, and it is the worker that decides."""
    start = HandlerProcess.__init__

    def start_and_signal(child: HandlerProcess, *arguments: Path) -> None:
        start(child, *arguments)
        for number in (signal.SIGTERM, signal.SIGINT):
            child._process.send_signal(number)

    monkeypatch.setattr(HandlerProcess, "__init__", start_and_signal)
    job = process_tasks.cube.enqueue(3)

    work(app)

    assert job.result(timeout=0)["cube"] == 27
    assert app.client.job(job.id).crashes == 0


def test_programs_and_processes_that_a_handler_starts_can_be_stopped(app: App) -> None:
    job = process_tasks.start_and_stop.enqueue()

    work(app)

    assert job.result(timeout=0) == [-signal.SIGTERM, -signal.SIGTERM]


SHOP = """
import os
from stagepost import App

app = App("sqlite:///shop.db")

@app.task
def go(folder: str) -> None:
    os.chdir(folder)

@app.task(pool="process")
def name() -> list[str]:
    return ["the shop", os.getcwd()]
"""
PROGRAM = """
import asyncio, json, os, sys
from stagepost import Worker
sys.path[:0] = {path!r}
import shop

async def run(job):
    await Worker(shop.app, concurrency=1).run(until_idle=True)
    print(json.dumps(job.result(timeout=0)))

{moves}
asyncio.run(run(shop.name.enqueue()))
"""
MOVES = {
    "program": "os.chdir(sys.argv[1])",
    "handler": "shop.go.using(priority=9).enqueue(sys.argv[1])",
}


@pytest.mark.parametrize("who", MOVES)
@pytest.mark.parametrize("path", [[], ["lib"]], ids=["the current directory", "a relative one"])
def test_a_process_loads_the_app_from_where_it_was_made_though_the_worker_has_gone_elsewhere(
    who: str, path: list[str], tmp_path: Path
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder, code in ((home, SHOP), (elsewhere, SHOP.replace("the shop", "a stranger"))):
        for place in (folder, *(folder / name for name in path)):
            place.mkdir()
        place.joinpath("shop.py").write_text(code, encoding="utf-8")
    if path:  # what is in the current directory is not for this program, nor for its processes
        home.joinpath("msgspec.py").write_text("raise SystemError", encoding="utf-8")
    program = PROGRAM.format(path=path, moves=MOVES[who])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}

    ended = subprocess.run(
        [sys.executable, *(["-P"] if path else []), "-c", program, str(elsewhere)],
        cwd=home, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == ["the shop", str(home)]
