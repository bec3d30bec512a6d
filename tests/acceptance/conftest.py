"""The fixture `app`: an empty app on each database, with an application's table beside Stagepost's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stagepost import App, Settings
from stagepost.worker import stop_requests
from stagepost.worker.lease_keeper import LeaseKeeper
from tests.conformance.bench import DatabaseOnBench
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitmqServer


def quick_settings(url: str, *, lease: float = 120.0) -> Settings:
    """Settings of a worker that looks for work all the time, and loses none to a machine that stalls."""
    return Settings(
        database_url=url, poll_shortest_seconds=0.01, poll_longest_seconds=0.05, concurrency=4, lease_seconds=lease
    )


@pytest.fixture(autouse=True)
def _waits_for_slow_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers that stop write everything: a database that does not answer in time is slow here, and never hangs."""
    for name in ("HURRIED", "UNHURRIED"):
        monkeypatch.setattr(stop_requests, name, replace(getattr(stop_requests, name), writing=600.0, total=600.0))


@pytest.fixture(scope="session", params=["sqlite", "postgres", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseOnBench]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('acceptance')}/stagepost.db"
    else:
        url = request.getfixturevalue(f"{request.param}_server").fresh_database()
    database = DatabaseOnBench(url)
    with database.store.transaction() as connection:
        connection.execute("create table effect (note varchar(100))", {})
    yield database
    database.close()


@pytest.fixture
def app(database: DatabaseOnBench) -> Iterator[App]:
    database.empty()
    with database.store.transaction() as connection:
        connection.execute("delete from effect", {})
    app = App(settings=quick_settings(database.url))
    yield app
    app.close()


@pytest.fixture(scope="session")
def one_database(postgres_server: PostgresServer) -> Iterator[DatabaseOnBench]:
    database = DatabaseOnBench(postgres_server.fresh_database())
    yield database
    database.close()


@pytest.fixture
def on_postgres(one_database: DatabaseOnBench) -> DatabaseOnBench:
    """Empty, and the only one: for what does not depend on the database."""
    one_database.empty()
    return one_database


@pytest.fixture
def quick_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers renew leases all the time, and so notice soon what was cancelled; a lease lasts as long as ever."""
    make = LeaseKeeper.__init__

    def make_quick(keeper: LeaseKeeper, *arguments: Any, **options: Any) -> None:
        make(keeper, *arguments, **options)
        keeper._interval = 0.1

    monkeypatch.setattr(LeaseKeeper, "__init__", make_quick)


@pytest.fixture(scope="session")
def broker_url(rabbitmq_server: RabbitmqServer) -> Iterator[str]:
    """A virtual host for the whole run; apps have prefixes of their own in it."""
    with rabbitmq_server.database() as url:
        yield url
