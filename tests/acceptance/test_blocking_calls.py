"""Blocking methods that async code calls in asyncio's debug mode: a warning names the async method."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, Worker
from stagepost.testing import inline
from tests.acceptance.helpers import LIMIT


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    app.migrate()
    yield app
    app.close()


def warnings_of(function: Callable[[], Any], *, debug: bool) -> list[str]:
    """Call a function on an event loop and return the warnings, without those that Python shows once only."""

    async def main() -> None:
        result = function()
        if asyncio.iscoroutine(result):
            await result

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        asyncio.run(main(), debug=debug)
    return [str(warning.message) for warning in caught]


def test_a_blocking_call_on_an_event_loop_names_the_async_method(app: App) -> None:
    @app.task
    def greet(name: str) -> str:
        return name

    def enqueue_twice() -> None:
        for name in ("Ada", "Grace"):
            greet.enqueue(name)

    job = greet.enqueue("Ada")
    assert warnings_of(enqueue_twice, debug=True) == [
        "`greet.enqueue` was called in a running event loop and blocks it; use `await greet.enqueue_async(…)`."
    ]
    assert warnings_of(job.state, debug=True) == [
        "`JobHandle.state` was called in a running event loop and blocks it; use `await JobHandle.state_async(…)`."
    ]


def test_the_warning_names_the_line_of_the_application(app: App) -> None:
    @app.task
    def greet() -> None: ...

    async def main() -> None:
        greet.enqueue()

    with pytest.warns(RuntimeWarning, match=r"greet\.enqueue") as caught:
        asyncio.run(main(), debug=True)

    assert [(warning.filename, warning.lineno) for warning in caught] == [
        (__file__, main.__code__.co_firstlineno + 1),
    ]


def test_a_transaction_is_warned_of_with_the_word_to_add(app: App) -> None:
    @app.task
    def greet() -> None: ...

    def enqueue_in_a_transaction() -> None:
        with app.transaction() as tx:
            greet.using(tx).enqueue()

    assert warnings_of(enqueue_in_a_transaction, debug=True) == [
        "`with` blocks the running event loop here; use `async with`.",
        "`Request.enqueue` was called in a running event loop and blocks it; use `await Request.enqueue_async(…)`.",
    ]


def test_nobody_is_warned_in_threads_by_async_methods_or_without_debug_mode(app: App) -> None:
    @app.task
    def greet() -> None: ...

    async def well_behaved() -> None:
        job = await greet.enqueue_async()
        await asyncio.to_thread(job.state)
        async with app.transaction() as tx:
            await greet.using(tx).enqueue_async()

    assert warnings_of(well_behaved, debug=True) == []
    assert warnings_of(greet.enqueue, debug=False) == []


def test_nobody_is_warned_of_the_database_in_memory_of_a_test(app: App) -> None:
    @app.task
    async def greet() -> None: ...

    @app.task
    async def enqueue_another() -> None:
        await greet.enqueue_async()

    async def test() -> None:
        with inline(app):
            await enqueue_another.enqueue_async()
            greet.enqueue()

    assert warnings_of(test, debug=True) == []


def test_handlers_are_warned_if_they_run_on_the_loop_of_their_worker(app: App) -> None:
    @app.task
    def greet() -> None: ...

    @app.task
    def in_a_thread() -> None:
        greet.enqueue()

    @app.task
    async def on_the_loop() -> None:
        greet.enqueue()

    async def work() -> None:
        async with asyncio.timeout(LIMIT):
            await Worker(app).run(until_idle=True)

    in_a_thread.enqueue()
    assert warnings_of(work, debug=True) == []
    on_the_loop.enqueue()
    assert warnings_of(work, debug=True) == [
        "`greet.enqueue` was called in a running event loop and blocks it; use `await greet.enqueue_async(…)`."
    ]


def test_pythons_development_mode_turns_the_warning_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import asyncio\n"
        "from stagepost import App\n"
        f"app = App('sqlite:///{tmp_path / 'jobs.db'}')\n"
        "app.migrate()\n"
        "@app.task\n"
        "def greet() -> None: ...\n"
        "async def main():\n"
        "    greet.enqueue()\n"
        "asyncio.run(main())\n"
        "app.close()\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-X", "dev", str(script)]

    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT).stderr

    assert f"{script}:8: RuntimeWarning: `greet.enqueue` was called in a running event loop" in found
