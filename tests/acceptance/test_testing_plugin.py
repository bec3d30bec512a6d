"""Assertions on enqueued jobs, and the pytest plugin, for the tests of applications."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import aiosqlite
import pytest

from stagepost import (
    App,
)
from stagepost.database.migrate import migrate
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


def test_assertions_match_the_arguments_given_and_leave_the_others_open(app: App, jobs: Manual) -> None:
    @app.task(name="send")
    def send(to: str, subject: str = "hello", *, urgent: bool = False) -> None: ...

    send.enqueue("ann@example.com")
    send.enqueue("bob@example.com", urgent=True)

    jobs.assert_enqueued(send)
    jobs.assert_enqueued(send, count=2)
    [job] = jobs.assert_enqueued(send, "bob@example.com", urgent=True)
    assert job.arguments == {"to": "bob@example.com", "subject": "hello", "urgent": True}
    jobs.assert_enqueued(send, subject="hello", count=2)
    jobs.assert_not_enqueued(send, "eve@example.com")
    with pytest.raises(AssertionError, match=r"1 jobs of send.*0 expected"):
        jobs.assert_not_enqueued(send, "bob@example.com")
    with pytest.raises(TypeError, match="cc"):
        jobs.assert_enqueued(send, cc="eve@example.com")


def test_a_failed_assertion_lists_what_was_enqueued(app: App, jobs: Manual) -> None:
    @app.task(name="send")
    def send(to: str) -> None: ...

    with pytest.raises(AssertionError, match=r"at least 1 expected\. All enqueued jobs:\n  nothing"):
        jobs.assert_enqueued(send)
    send.enqueue("bob@example.com")

    with pytest.raises(AssertionError) as failure:
        jobs.assert_enqueued(send, "ann@example.com")

    assert str(failure.value) == (
        "0 jobs of send(to='ann@example.com') were enqueued, but at least 1 expected. All enqueued jobs:\n"
        "  send(to='bob@example.com') in queue 'default', queued"
    )


async def test_jobs_of_an_uncommitted_transaction_are_seen_within_it_only(
    app: App, jobs: Manual, tmp_path: Path
) -> None:
    path = tmp_path / "application.db"
    applications = App(f"sqlite:///{path}")

    @applications.task(name="send")
    def old(to: str) -> None: ...

    @app.task(name="send")
    def send(to: str) -> None: ...

    migrate(applications.store)
    old.enqueue("long ago")
    applications.close()
    with manual(app, database_url=f"sqlite:///{path}") as own, contextlib.closing(sqlite3.connect(path)) as tx:
        send.using(tx).enqueue("ann@example.com")

        own.assert_enqueued(send, "ann@example.com", within=tx, count=1)
        own.assert_not_enqueued(send, "long ago", within=tx)
        own.assert_not_enqueued(send)
        tx.rollback()
        own.assert_not_enqueued(send, within=tx)

    async with aiosqlite.connect(path) as async_tx:
        await send.using(async_tx).enqueue_async("bob@example.com")
        await jobs.assert_enqueued_async(send, "bob@example.com", within=async_tx)
        await jobs.assert_not_enqueued_async(send, "ann@example.com", within=async_tx)
        await jobs.assert_not_enqueued_async(send)


def run_pytest(folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_an_application_names_its_app_once_and_uses_the_fixtures(tmp_path: Path) -> None:
    result = run_pytest(
        tmp_path,
        shop="""
            from stagepost import App

            app = App("postgresql://nobody@127.0.0.1:1/production")

            @app.task
            def double(number: int) -> int:
                return 2 * number
        """,
        conftest="""
            import pytest

            @pytest.fixture
            def stagepost_app():
                from shop import app
                return app
        """,
        test_shop="""
            from datetime import timedelta
            from shop import double

            def test_manual(stagepost_manual, stagepost_clock):
                double.using(delay=60).enqueue(4)
                stagepost_manual.assert_enqueued(double, 4)
                stagepost_clock.advance(timedelta(minutes=1))
                assert stagepost_manual.drain().completed == 1

            def test_each_test_starts_empty(stagepost_manual):
                stagepost_manual.assert_not_enqueued(double)

            def test_inline(stagepost_inline):
                assert double.enqueue(4).result() == 8
        """,
    )

    assert "3 passed" in result.stdout, result.stdout + result.stderr


def test_without_an_app_the_fixtures_say_what_to_define(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, test_shop="def test_manual(stagepost_manual): ...")

    assert "Define one in conftest.py that returns your App" in result.stdout


def test_the_plugin_itself_imports_no_driver_and_none_of_its_own_machinery() -> None:
    program = """
        import sys
        import stagepost
        before = set(sys.modules)
        import stagepost.testing.plugin
        assert "psycopg" not in sys.modules and "pymysql" not in sys.modules
        added = {name for name in set(sys.modules) - before if name.startswith("stagepost")}
        assert added == {"stagepost.testing", "stagepost.testing.plugin"}, added
    """
    subprocess.run([sys.executable, "-c", dedent(program)], check=True, timeout=120)
