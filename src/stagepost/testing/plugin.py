"""The pytest plugin. Define your app once in conftest.py; the fixtures then keep jobs out of your database:

    @pytest.fixture
    def stagepost_app():
        from shop.tasks import app
        return app

    def test_signing_up_sends_a_mail(stagepost_manual):
        sign_up("ann@example.com")
        stagepost_manual.assert_enqueued(send_mail, "ann@example.com")

`stagepost_clock` and `stagepost_database_url` can be overridden in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stagepost.client import App
    from stagepost.testing.clock import ManualClock
    from stagepost.testing.modes import Inline, Manual

__all__ = ["stagepost_app", "stagepost_clock", "stagepost_database_url", "stagepost_inline", "stagepost_manual"]

# Stagepost is imported only when a fixture is used, because pytest loads this module in every run of every project.
# ruff: noqa: PLC0415


@pytest.fixture
def stagepost_app() -> App:
    """The app under test: override this fixture."""
    pytest.fail(
        "the fixture `stagepost_app` is not defined. Define one in conftest.py that returns your App.", pytrace=False
    )


@pytest.fixture
def stagepost_clock() -> ManualClock:
    """A clock that starts now and stands still until `stagepost_clock.advance(...)`."""
    from stagepost.testing.modes import clock_from_now

    return clock_from_now()


@pytest.fixture
def stagepost_database_url() -> str:
    """The database for a test's jobs: a new SQLite database in memory for each test.

    If your code passes its own transactions and the test also runs the jobs, override this with the address of your
    test database, migrated by Stagepost.
    """
    return "sqlite://"


@pytest.fixture
def stagepost_manual(stagepost_app: App, stagepost_clock: ManualClock, stagepost_database_url: str) -> Iterator[Manual]:
    """Keeps jobs until `drain()` runs them."""
    from stagepost.testing.modes import manual

    with manual(stagepost_app, database_url=stagepost_database_url, clock=stagepost_clock) as mode:
        yield mode


@pytest.fixture
def stagepost_inline(stagepost_app: App, stagepost_clock: ManualClock, stagepost_database_url: str) -> Iterator[Inline]:
    """Runs every job immediately when it is enqueued, and raises there what its task raises."""
    from stagepost.testing.modes import inline

    with inline(stagepost_app, database_url=stagepost_database_url, clock=stagepost_clock) as mode:
        yield mode
