"""Fixtures with a private RabbitMQ: one node per run, different names for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fault.arena import Arena
from tests.fault.nursery import Nursery
from tests.fault.rabbit import RESENDING, URL_VARIABLE, Names, PrivateRabbitmq
from tests.services.fixtures import give_up_on
from tests.services.locate import RABBITMQ


@pytest.fixture(scope="session")
def rabbitmq_node(pytestconfig: pytest.Config) -> Iterator[PrivateRabbitmq]:
    """A node that may be stopped and wiped; it is up again when a test ends."""
    if missing := PrivateRabbitmq.missing_program():
        give_up_on(RABBITMQ, f"a private instance needs {missing}", pytestconfig)
    with PrivateRabbitmq() as node:
        yield node


@pytest.fixture(scope="session")
def rabbitmq_url(request: pytest.FixtureRequest) -> str:
    """Where a private node is: one that a run around this run has, or our own."""
    if given := os.environ.get(URL_VARIABLE):
        return given
    node: PrivateRabbitmq = request.getfixturevalue("rabbitmq_node")
    return node.url


@pytest.fixture
def names(rabbitmq_url: str) -> Iterator[Names]:
    names = Names(rabbitmq_url)
    yield names
    names.clear()


@pytest.fixture
def carried(arena: Arena, names: Names) -> Arena:
    """An arena whose queues are carried by the broker, on each database in turn."""
    names.carry(arena)
    return arena


@pytest.fixture
def all_carried(request: pytest.FixtureRequest, nursery: Nursery, rabbitmq_url: str) -> Iterator[list[Arena]]:
    """An arena on each database at once, for faults that are slow to make."""
    arenas, all_names = [], []
    for name in ("sqlite", "postgres", "mariadb"):
        backend = request.getfixturevalue(f"{name}_backend")
        backend.empty()
        folder = request.getfixturevalue("tmp_path") / name
        folder.mkdir()
        arena, names = Arena(backend, nursery, folder), Names(rabbitmq_url)
        names.carry(arena, **RESENDING)
        arenas.append(arena)
        all_names.append(names)
    yield arenas
    nursery.kill_all()
    for names in all_names:
        names.clear()
