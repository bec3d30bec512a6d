"""Fixtures of the fault tests: databases with a ledger, workers that can be killed, and a look for leaks."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.arena import Arena
from tests.fault.backends import NAMES, Backend, opened, sqlite_url
from tests.fault.leaks import no_open_transaction, nothing_left, own_files, own_threads
from tests.fault.nursery import Nursery
from tests.fault.servers import PrivateMariaDB, PrivatePostgres
from tests.services.mariadb import MariadbServer

UNSYNCED_POSTGRES = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "150"}
UNSYNCED_MARIADB = {"innodb-flush-log-at-trx-commit": "0", "innodb-doublewrite": "OFF", "max-connections": "300"}
WITHOUT_TLS = "?ssl_disabled=1"
"""PyMySQL reads all certificates of the machine for every connection, 50 ms each."""
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it


@contextlib.contextmanager
def memory_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory where the machine has one: SQLite syncs at every commit."""
    if not MEMORY.is_dir():
        yield tmp_path_factory.mktemp("sqlite")
        return
    with tempfile.TemporaryDirectory(prefix="stagepost-fault-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("workers"))
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def sqlite_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with memory_folder(tmp_path_factory) as folder, opened("sqlite", sqlite_url(folder)) as backend:
        yield backend


@pytest.fixture(scope="session")
def postgres_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A private server where there can be one, without syncing: here processes die, not machines."""
    if PrivatePostgres.missing_program() is None:
        with PrivatePostgres(UNSYNCED_POSTGRES) as server, opened("postgres", server.url) as backend:
            yield backend
    else:
        with request.getfixturevalue("postgres_server").database() as url, opened("postgres", url) as backend:
            yield backend


@pytest.fixture(scope="session")
def mariadb_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """As `postgres_backend`."""
    if PrivateMariaDB.missing_program() is None:
        with PrivateMariaDB(UNSYNCED_MARIADB) as server, MariadbServer(server.url, origin="").database() as url:
            with opened("mariadb", url + WITHOUT_TLS) as backend:
                yield backend
    else:
        with request.getfixturevalue("mariadb_server").database() as url:
            with opened("mariadb", url + WITHOUT_TLS) as backend:
                yield backend


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each database in turn, without rows; `indirect` parameters choose some of them. Nothing may be left over."""
    backend: Backend = request.getfixturevalue(f"{request.param}_backend")
    backend.empty()
    files, threads = own_files(), own_threads()
    yield backend
    nothing_left(backend, files=files, threads=threads)


@pytest.fixture
def arena(nursery: Nursery, backend: Backend, tmp_path: Path) -> Iterator[Arena]:
    """Where a fault is tried; no transaction is left open by workers that live, no worker outlives its test."""
    yield Arena(backend, nursery, tmp_path)
    no_open_transaction(backend)
    nursery.kill_all()
