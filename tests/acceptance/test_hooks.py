"""Hooks run around attempts, after failures and with a worker, and an error in each has a defined effect."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, Cancelled, JobContext, JobState, Permanent, Snooze, current_job
from stagepost.testing import inline, manual
from stagepost.worker import executor, stop_requests
from tests.acceptance import hooked_process_tasks
from tests.acceptance.conftest import quick_settings
from tests.acceptance.helpers import AT_ONCE, notes, work, write
from tests.conformance.bench import DatabaseOnBench

Mode = Callable[[App], None]


@pytest.fixture
def app(on_postgres: DatabaseOnBench) -> Iterator[App]:
    """On one database: hooks do not depend on it."""
    app = App(settings=quick_settings(on_postgres.url))
    yield app
    app.close()


@pytest.fixture
def log_of(app: App) -> list[str]:
    """Two nested hooks that write down what happens."""
    seen: list[str] = []

    def named(name: str) -> None:
        @app.around_attempt
        def hook(job: JobContext) -> Iterator[None]:
            assert current_job().id == job.id
            seen.append(f"{name} before")
            try:
                yield
            except BaseException as error:
                seen.append(f"{name} saw {type(error).__name__}")
                raise
            finally:
                seen.append(f"{name} after")

    named("outer")
    named("inner")
    return seen


@pytest.mark.parametrize("is_async", [False, True])
def test_hooks_nest_around_the_handler_in_its_own_thread(app: App, log_of: list[str], *, is_async: bool) -> None:
    threads: list[int] = []
    shown: contextvars.ContextVar[str] = contextvars.ContextVar("shown", default="")

    @app.around_attempt
    def innermost(job: JobContext) -> Iterator[None]:
        threads.append(threading.get_ident())
        shown.set(job.task)
        yield
        threads.append(threading.get_ident())

    def handle() -> str:
        threads.append(threading.get_ident())
        log_of.append("handler")
        return shown.get()

    async def handle_async() -> str:
        await asyncio.sleep(0)
        return handle()

    task = app.task(name="handle")(handle_async if is_async else handle)
    job = task.enqueue()
    work(app)

    assert job.result(timeout=0) == "handle"
    assert log_of == ["outer before", "inner before", "handler", "inner after", "outer after"]
    assert len(threads) == 3
    assert len(set(threads)) == 1
    assert (threads[0] == threading.get_ident()) is is_async


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Permanent("no"), JobState.FAILED),
        (OSError("down"), JobState.DEAD_LETTER),
        (Snooze(3600), JobState.SCHEDULED),
        (Cancelled("enough"), JobState.CANCELLED),
        (SystemExit(1), JobState.DEAD_LETTER),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_the_handlers_error_is_raised_at_the_yield(
    app: App, log_of: list[str], error: BaseException, state: JobState, *, is_async: bool
) -> None:
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    job = app.task(name="fail")(fail_async if is_async else fail).using(max_attempts=1).enqueue()
    work(app)

    saw = type(error).__name__
    assert app.client.job(job.id).state is state
    assert log_of[2:] == [f"inner saw {saw}", "inner after", f"outer saw {saw}", "outer after"]


def test_a_hook_that_swallows_the_handlers_error_does_not_hide_it(app: App) -> None:
    @app.around_attempt
    def swallow(job: JobContext) -> Iterator[None]:
        try:
            yield
        except BaseException:  # noqa: BLE001 - what a careless hook does
            return

    @app.around_attempt
    async def swallow_async(job: JobContext) -> AsyncIterator[None]:
        with contextlib.suppress(BaseException):
            yield

    @app.task(retry=AT_ONCE)
    def fail() -> None:
        raise StopIteration("lost")

    @app.task(retry=AT_ONCE)
    async def fail_async() -> None:
        raise Permanent("lost")

    @app.task(timeout=0.05, retry=AT_ONCE)
    async def hang() -> None:
        await asyncio.sleep(600)

    jobs = [fail.enqueue(), fail_async.enqueue(), hang.using(max_attempts=1).enqueue()]
    work(app)

    errors = [app.client.job(job.id).error or "" for job in jobs]
    assert errors[0] == "RuntimeError: the handler raised StopIteration"
    assert errors[1] == "Permanent: lost"
    assert errors[2] == "TimeoutError: the attempt took longer than its timeout of 0.05 s"


def test_a_hook_may_raise_another_error_and_the_traceback_of_the_handlers_own_does_not_show_it(app: App) -> None:
    @app.around_attempt
    def translate(job: JobContext) -> Iterator[None]:
        try:
            yield
        except LookupError as error:
            raise Permanent("there is no such customer") from error

    @app.task(retry=AT_ONCE)
    def miss() -> None:
        raise KeyError(5)

    @app.task(retry=AT_ONCE)
    def refuse() -> None:
        raise Permanent("no")

    missed, refused = miss.enqueue(), refuse.enqueue()
    work(app)

    assert app.client.job(missed.id).error == "Permanent: there is no such customer"
    [failure] = app.client.failures(refused.id)
    assert 'raise Permanent("no")' in (failure.traceback or "")
    assert "in translate" not in (failure.traceback or "")


def test_async_hooks_wrap_async_handlers_in_their_task_and_skip_plain_ones(app: App) -> None:
    seen: list[Any] = []

    @app.around_attempt
    async def hook(job: JobContext) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        yield
        await asyncio.sleep(0)
        seen.append("after")

    @app.task
    def plain() -> None:
        seen.append("plain")

    @app.task
    async def waits() -> None:
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    waits.enqueue()
    work(app)
    assert seen == [seen[0], seen[0], "after"]
    plain.enqueue()
    work(app)
    assert seen[3:] == ["plain"]


def _raise_before(job: JobContext) -> Iterator[None]:
    if job.attempt:
        raise OSError("before")
    yield


def _raise_after(job: JobContext) -> Iterator[None]:
    yield
    raise OSError("after")


def _never_yield(job: JobContext) -> Iterator[None]:
    if job.id == "":
        yield


def _yield_twice(job: JobContext) -> Iterator[None]:
    yield
    yield


async def _raise_before_async(job: JobContext) -> AsyncIterator[None]:
    if job.attempt:
        raise OSError("before")
    yield


async def _raise_after_async(job: JobContext) -> AsyncIterator[None]:
    yield
    raise OSError("after")


async def _never_yield_async(job: JobContext) -> AsyncIterator[None]:
    if job.id == "":
        yield


async def _yield_twice_async(job: JobContext) -> AsyncIterator[None]:
    yield
    yield


@pytest.mark.parametrize(
    ("hook", "runs", "error"),
    [
        (_raise_before, 0, "OSError: before"),
        (_raise_after, 3, "OSError: after"),
        (_never_yield, 0, "_never_yield ended without a `yield`, so the handler did not run. Let it yield once on"),
        (_yield_twice, 3, "TaskError: hook tests.acceptance.test_hooks._yield_twice yielded twice. Let it yield once."),
        (_raise_before_async, 0, "OSError: before"),
        (_raise_after_async, 3, "OSError: after"),
        (_never_yield_async, 0, "_never_yield_async ended without a `yield`, so the handler did not run."),
        (_yield_twice_async, 3, "_yield_twice_async yielded twice. Let it yield once."),
    ],
)
def test_an_error_in_an_around_hook_fails_the_attempt_under_the_tasks_policy(
    app: App, hook: Any, runs: int, error: str
) -> None:
    ran: list[int] = []
    app.around_attempt(hook)

    @app.task(retry=AT_ONCE)
    async def handle(job: JobContext) -> None:
        ran.append(job.attempt)

    job = handle.enqueue()
    work(app)

    ended = app.client.job(job.id)
    assert (ended.state, ended.failures, len(ran)) == (JobState.DEAD_LETTER, 3, runs)
    assert error in (ended.error or "")


def test_a_hook_that_fails_after_the_handler_settled_its_job_changes_nothing(
    database: DatabaseOnBench, caplog: pytest.LogCaptureFixture
) -> None:
    database.empty()
    with database.store.transaction() as connection:
        connection.execute("delete from effect", {})
    app = App(settings=quick_settings(database.url))
    reported: list[str] = []
    app.around_attempt(_raise_after)
    app.on_failure(lambda _job, error: reported.append(str(error)))

    @app.task(retry=AT_ONCE)
    def handle(job: JobContext) -> None:
        with app.transaction() as tx:
            write(tx, "done")
            job.complete(tx)

    job = handle.enqueue()
    with caplog.at_level(logging.WARNING):
        work(app)

    assert (app.client.job(job.id).state, notes(app), reported) == (JobState.COMPLETED, ["done"], [])
    about = [record for record in caplog.records if "OSError: after" in record.getMessage()]
    assert [record.levelname for record in about] == ["WARNING"]
    app.close()


def test_on_failure_gets_every_error_that_fails_an_attempt_and_nothing_else(app: App) -> None:
    plain: list[str] = []
    awaited: list[str] = []

    @app.on_failure
    def note(job: JobContext, error: BaseException) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert current_job().id == job.id
        plain.append(f"{job.task} {job.attempt} {type(error).__name__}")

    @app.on_failure
    async def note_async(job: JobContext, error: BaseException) -> None:
        await asyncio.sleep(0)
        awaited.append(f"{job.task} {job.attempt} {type(error).__name__}")

    @app.task(name="fail", retry=AT_ONCE)
    def fail() -> None:
        raise OSError("down")

    @app.task(name="refuse")
    async def refuse() -> None:
        raise Permanent("no")

    @app.task(name="late", timeout=0.05)
    def late(job: JobContext) -> None:
        while not job.is_cancelled:
            threading.Event().wait(0.01)

    @app.task
    def snooze() -> None:
        raise Snooze(3600)

    @app.task
    async def cancel() -> None:
        raise Cancelled

    for job in (fail.job(), refuse.job(), late.using(max_attempts=1).job(), snooze.job(), cancel.job()):
        app.client.enqueue(job)
    work(app)

    expected = ["fail 1 OSError", "fail 2 OSError", "fail 3 OSError", "late 1 TimeoutError", "refuse 1 Permanent"]
    assert sorted(plain) == sorted(awaited) == expected


def test_an_error_in_on_failure_is_logged_and_the_next_hook_runs(app: App, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    @app.on_failure
    def broken(job: JobContext, error: BaseException) -> None:
        raise SystemExit(3)

    @app.on_failure
    async def broken_too(job: JobContext, error: BaseException) -> None:
        raise ValueError("also broken")

    @app.on_failure
    def last(job: JobContext, error: BaseException) -> None:
        seen.append(str(error))

    @app.task
    def fail() -> None:
        raise Permanent("no")

    job = fail.enqueue()
    work(app)

    assert (app.client.job(job.id).error, seen) == ("Permanent: no", ["no"])
    assert f"job {job.id}: its on_failure hook tests.acceptance.test_hooks" in caplog.text
    assert "ValueError: also broken" in caplog.text


def test_an_on_failure_hook_that_hangs_does_not_keep_the_outcome(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor, "LONGEST_REPORT_SECONDS", 0.05)
    release = threading.Event()

    @app.on_failure
    def hang(job: JobContext, error: BaseException) -> None:
        release.wait(600)

    @app.task
    def fail() -> None:
        raise Permanent("no")

    job = fail.enqueue()
    try:
        work(app)
    finally:
        release.set()

    assert app.client.job(job.id).error == "Permanent: no"
    assert "its on_failure hooks did not end in time and were abandoned" in caplog.text


def test_hooks_of_a_process_task_run_in_its_process(
    on_postgres: DatabaseOnBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    app, file = hooked_process_tasks.app, tmp_path / "notes"
    monkeypatch.setenv("STAGEPOST_DATABASE_URL", on_postgres.url)
    monkeypatch.setenv("NOTES", str(file))
    monkeypatch.setattr(app, "settings", quick_settings(on_postgres.url))

    done, failed = hooked_process_tasks.succeed.enqueue(), hooked_process_tasks.fail.enqueue()
    work(app, concurrency=1)
    app.close()

    assert done.result(timeout=0) != os.getpid()
    assert app.client.job(failed.id).error == "Permanent: no"
    assert file.read_text(encoding="utf-8").splitlines() == [
        f"before {done.result(timeout=0)}",
        f"after {done.result(timeout=0)}",
        f"before {done.result(timeout=0)}",
        f"Permanent {done.result(timeout=0)}",
        f"after {done.result(timeout=0)}",
        f"failed {done.result(timeout=0)}",
        f"failed async {done.result(timeout=0)}",
    ]
    app.close()


def test_worker_hooks_run_before_the_first_job_and_after_the_last(app: App) -> None:
    seen: list[str] = []

    @app.on_worker_start
    def start() -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.append("start")

    @app.on_worker_start
    async def start_async() -> None:
        await asyncio.sleep(0)
        seen.append("start async")

    @app.on_worker_stop
    def stop() -> None:
        assert app.client.job(job.id).state is JobState.COMPLETED
        seen.append("stop")

    @app.on_worker_stop
    async def stop_async() -> None:
        seen.append("stop async")

    @app.task
    def handle() -> None:
        seen.append("job")

    job = handle.enqueue()
    work(app)

    assert seen == ["start", "start async", "job", "stop async", "stop"]


def test_a_worker_whose_start_hook_fails_does_not_start(app: App) -> None:
    seen: list[str] = []

    @app.on_worker_start
    def start() -> None:
        raise LookupError("no model file")

    app.on_worker_stop(lambda: seen.append("stop"))

    @app.task
    def handle() -> None:
        seen.append("job")

    job = handle.enqueue()
    with pytest.raises(LookupError, match="no model file"):
        work(app)

    assert (seen, app.client.job(job.id).state) == ([], JobState.QUEUED)


def test_stop_hooks_that_fail_or_hang_do_not_keep_the_worker(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        stop_requests, "UNHURRIED", stop_requests.Patience(stubborn=2, silence=2, writing=600, parting=0.1, total=0.2)
    )
    release = threading.Event()
    seen: list[str] = []
    app.on_worker_stop(lambda: seen.append("first"))

    @app.on_worker_stop
    async def broken() -> None:
        raise ValueError("cannot flush")

    @app.on_worker_stop
    def hang() -> None:
        release.wait(600)

    @app.task
    def handle() -> None: ...

    job = handle.enqueue()
    try:
        work(app, shutdown_timeout=0)
    finally:
        release.set()

    assert (app.client.job(job.id).state, seen) == (JobState.COMPLETED, ["first"])
    assert "hang did not end in time and was abandoned" in caplog.text
    assert "ValueError: cannot flush" in caplog.text


def _drained(app: App) -> None:
    with manual(app) as mode:
        app.registry.get("handle").enqueue()  # type: ignore[attr-defined]
        mode.drain(until=timedelta(hours=1))


def _inlined(app: App) -> None:
    with inline(app), pytest.raises(OSError, match="down"):
        app.registry.get("handle").enqueue()  # type: ignore[attr-defined]


def _inlined_on_a_loop(app: App) -> None:
    with inline(app), pytest.raises(OSError, match="down"):
        asyncio.run(app.registry.get("handle").enqueue_async())  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", [_drained, _inlined, _inlined_on_a_loop])
@pytest.mark.parametrize("kind", ["thread", "process", "async"])
def test_test_helpers_honour_hooks(app: App, log_of: list[str], mode: Mode, kind: str) -> None:
    app.on_failure(lambda _job, error: log_of.append(f"reported {error}"))

    @app.on_failure
    async def report(_job: JobContext, error: BaseException) -> None:
        await asyncio.sleep(0)
        log_of.append(f"reported async {error}")

    def handle() -> None:
        raise OSError("down")

    async def handle_async() -> None:
        handle()

    function = handle_async if kind == "async" else handle
    pool: Any = {"pool": "process"} if kind == "process" else {}
    app.task(name="handle", retry=AT_ONCE, **pool)(function)
    mode(app)

    once = [
        "outer before", "inner before", "inner saw OSError", "inner after", "outer saw OSError", "outer after",
        "reported down", "reported async down",
    ]  # fmt: skip
    assert log_of == once * (3 if mode is _drained else 1)
