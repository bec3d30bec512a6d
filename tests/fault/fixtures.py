"""Fixtures with private servers that a test may stop, kill and pause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fault.servers import PrivateMariaDB, PrivatePostgres
from tests.services.fixtures import give_up_on
from tests.services.locate import MARIADB, POSTGRES


@pytest.fixture
def private_postgres(pytestconfig: pytest.Config) -> Iterator[PrivatePostgres]:
    if missing := PrivatePostgres.missing_program():
        give_up_on(POSTGRES, f"a private instance needs {missing}", pytestconfig)
    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def private_mariadb(pytestconfig: pytest.Config) -> Iterator[PrivateMariaDB]:
    if missing := PrivateMariaDB.missing_program():
        give_up_on(MARIADB, f"a private instance needs {missing}", pytestconfig)
    with PrivateMariaDB() as server:
        yield server
