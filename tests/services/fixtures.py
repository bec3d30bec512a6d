"""Fixtures for tests that need a database or broker; a run ends with a list of what it used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from tests.services.locate import (
    MARIADB,
    POSTGRES,
    RABBITMQ,
    REDIS,
    SPIN,
    AnyServer,
    Programs,
    Service,
    Source,
    locate,
    missing_is_failure,
    open_server,
)
from tests.services.mariadb import MariadbServer
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitmqServer
from tests.services.redis import RedisServer

USED = pytest.StashKey[dict[str, str]]()


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    yield from _serve(POSTGRES, pytestconfig)


@pytest.fixture(scope="session")
def mariadb_server(pytestconfig: pytest.Config) -> Iterator[MariadbServer]:
    yield from _serve(MARIADB, pytestconfig)


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> Iterator[RedisServer]:
    yield from _serve(REDIS, pytestconfig)


@pytest.fixture(scope="session")
def rabbitmq_server(pytestconfig: pytest.Config) -> Iterator[RabbitmqServer]:
    yield from _serve(RABBITMQ, pytestconfig)


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """URL of an empty database for one test."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def mariadb_database(mariadb_server: MariadbServer) -> Iterator[str]:
    """URL of an empty database for one test."""
    with mariadb_server.database() as url:
        yield url


@pytest.fixture(scope="session")
def spin(pytestconfig: pytest.Config) -> None:
    """Demand the model checker and the compiler that it needs."""
    demand(SPIN, pytestconfig)


def demand(programs: Programs, config: pytest.Config) -> str:
    """Say where the programs and files are; without them, give up on the test."""
    location = locate(programs)
    if location.source is Source.MISSING:
        give_up_on(programs, location.detail, config)
    config.stash[USED][programs.name] = location.detail
    return location.detail


def pytest_configure(config: pytest.Config) -> None:
    config.stash[USED] = {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if used := config.stash[USED]:
        terminalreporter.section("services")
        for name, detail in used.items():
            terminalreporter.line(f"{name}: {detail}")


def give_up_on(service: Service[Any] | Programs, reason: str, config: pytest.Config) -> NoReturn:
    """Skip the test with the command that would help; in continuous integration, fail it."""
    message = f"{reason}. To fix it: {service.remedy}"
    config.stash[USED][service.name] = f"NOT TESTED: {message}"
    if missing_is_failure():
        pytest.fail(f"{service.name} cannot be had, and CI=true: {message}", pytrace=False)
    pytest.skip(f"{service.name} cannot be had: {message}")


def _serve(service: Service[AnyServer], config: pytest.Config) -> Iterator[AnyServer]:
    location = locate(service)
    if location.source is Source.MISSING:
        give_up_on(service, location.detail, config)
    server = open_server(service, location)
    config.stash[USED][service.name] = server.origin
    try:
        yield server
    finally:
        server.close()
