"""Fixtures of the fault tests: databases with a ledger, workers that can be killed, and a look for leaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fault.arena import Arena
from tests.fault.backends import NAMES, Backend, opened, sqlite_url
from tests.fault.nursery import Nursery


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("workers"))
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def sqlite_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with opened("sqlite", sqlite_url(tmp_path_factory.mktemp("sqlite"))) as backend:
        yield backend


@pytest.fixture(scope="session")
def postgres_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with request.getfixturevalue("postgres_server").database() as url, opened("postgres", url) as backend:
        yield backend


@pytest.fixture(scope="session")
def mariadb_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with request.getfixturevalue("mariadb_server").database() as url, opened("mariadb", url) as backend:
        yield backend


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each database in turn, without rows; `indirect` parameters choose some of them."""
    backend: Backend = request.getfixturevalue(f"{request.param}_backend")
    backend.empty()
    return backend


@pytest.fixture
def arena(backend: Backend, nursery: Nursery, tmp_path: Path) -> Iterator[Arena]:
    """Where a fault is tried; no worker outlives its test."""
    yield Arena(backend, nursery, tmp_path)
    nursery.kill_all()
