"""A caller's open transaction on MariaDB locks only the rows it writes, so that nobody else has to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from stagepost.database import Store
from stagepost.database.connection import Connection
from stagepost.errors import StoreUnavailable
from stagepost.store import jobs
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.caller_kinds import KINDS
from tests.conformance.callers import Caller, calling
from tests.conformance.conftest import check
from tests.conformance.held import HELD_OPEN, MEANWHILE
from tests.conformance.samples import new_job

[PYMYSQL] = [kind for kind in KINDS if str(kind) == "mariadb-pymysql"]
ISOLATIONS = ("read committed", "repeatable read")
every_isolation = pytest.mark.parametrize("isolation", ISOLATIONS)


WRITTEN = ("batch", "count", "event", "gate", "job", "job_history", "live_key", "move", "run", "unique_key")
"""Tables that these tests write to."""


@pytest.fixture
def store(database_on_bench: Callable[[str], DatabaseOnBench]) -> Iterator[Bench]:
    """A database without rows, and without rows that were deleted and are not purged yet.

    When InnoDB purges those, it merges pages, and a lock on a row in one of them becomes a lock on the gap beside it.
    """
    database = database_on_bench("mariadb")
    database.empty()
    with closing(database.store.database.connect()) as connection:
        for name in WRITTEN:
            connection.execute(f"truncate table stagepost_{name}", {})
    bench = Bench(database, Colour.SYNC)
    yield bench
    check(bench)


@pytest.fixture
def impatient(store: Bench) -> Iterator[Store]:
    """Another store, which fails if it has to wait for a lock for more than a second."""
    other = Store.at(store.url, pool_size=1, clock=store.clock, patience_seconds=0)
    connect = other.database.connect

    def connect_impatiently() -> Connection:
        connection = connect()
        connection.execute("set session innodb_lock_wait_timeout = 1", {})
        return connection

    other.database.connect = connect_impatiently  # type: ignore[method-assign]
    with closing(other):
        yield other


def begin(caller: Caller, isolation: str) -> None:
    """Begin a transaction as an application does, by reading one of its own rows."""
    caller.execute(f"set session transaction isolation level {isolation}")
    caller.begin()
    caller.execute("select count(*) from stagepost_queue")


@every_isolation
@pytest.mark.parametrize("held", HELD_OPEN)
def test_an_open_transaction_blocks_no_other(store: Bench, impatient: Store, held: str, isolation: str) -> None:
    others = {name: prepare(store) for name, prepare in MEANWHILE.items()}
    operation = HELD_OPEN[held](store)
    waited = []
    with calling(PYMYSQL, store.url, store.clock) as caller:
        begin(caller, isolation)
        caller.run(operation)

        for name, other in others.items():
            try:
                impatient.run(other)
            except StoreUnavailable as error:
                waited.append(f"{name}: {error}")
        caller.commit()

    assert waited == []


@every_isolation
def test_the_holder_of_a_key_ends_while_a_caller_that_asked_for_it_is_open(
    store: Bench, impatient: Store, isolation: str
) -> None:
    holder = MEANWHILE["complete another with a key"](store)
    with calling(PYMYSQL, store.url, store.clock) as caller:
        begin(caller, isolation)
        enqueued = caller.run(jobs.enqueue(new_job(unique_key="key:59")))

        assert all(impatient.run(holder).values())
        caller.commit()

    assert not enqueued.is_new
