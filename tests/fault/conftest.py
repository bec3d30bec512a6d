"""Fixtures of the fault tests: databases with a ledger, workers that can be killed, and a look for leaks."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fault.arena import Arena
from tests.fault.backends import NAMES, Backend, opened, sqlite_url
from tests.fault.leaks import no_open_transaction, nothing_left, own_files, own_threads
from tests.fault.nursery import Nursery
from tests.fault.servers import PrivateMariaDB, PrivatePostgres
from tests.runner.servers import FAULT_VARIABLES
from tests.services import mariadb, postgres
from tests.services.mariadb import MariadbServer
from tests.services.postgres import PostgresServer

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
    with contextlib.ExitStack() as stack:
        given = os.environ.get(FAULT_VARIABLES["postgres"])
        if given is not None:
            server = PostgresServer(given, origin="")
        elif PrivatePostgres.missing_program() is None:
            server = PostgresServer(stack.enter_context(PrivatePostgres(postgres.UNSYNCED)).url, origin="")
        else:
            server = request.getfixturevalue("postgres_server")
        yield stack.enter_context(opened("postgres", stack.enter_context(server.database())))


@pytest.fixture(scope="session")
def mariadb_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """As `postgres_backend`."""
    with contextlib.ExitStack() as stack:
        given = os.environ.get(FAULT_VARIABLES["mariadb"])
        if given is not None:
            server = MariadbServer(given, origin="")
        elif PrivateMariaDB.missing_program() is None:
            server = MariadbServer(stack.enter_context(PrivateMariaDB(mariadb.UNSYNCED)).url, origin="")
        else:
            server = request.getfixturevalue("mariadb_server")
        url = stack.enter_context(server.database()).partition("?")[0]
        yield stack.enter_context(opened("mariadb", url + WITHOUT_TLS))


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each database in turn, without rows; `indirect` parameters choose some of them. Nothing may be left over."""
    backend: Backend = request.getfixturevalue(f"{request.param}_backend")
    backend.empty()
    files, threads = own_files(), own_threads()
    yield backend
    nothing_left(backend, files=files, threads=threads)


@pytest.fixture
def arena(
    nursery: Nursery, backend: Backend, tmp_path: Path, record_property: Callable[[str, object], None]
) -> Iterator[Arena]:
    """Where a fault is tried; no transaction is left open by workers that live, no worker outlives its test."""
    kills = nursery.kills
    yield Arena(backend, nursery, tmp_path)
    record_property("kills", nursery.kills - kills)
    try:
        no_open_transaction(backend)
    finally:
        nursery.kill_all()
