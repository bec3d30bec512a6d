"""The locks that a private MariaDB reports: the rows written, and no gaps beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from stagepost.database.transaction import run_in
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.caller_kinds import open_pymysql
from tests.conformance.held import HELD_OPEN
from tests.fault.servers import PrivateMariaDB
from tests.services.fixtures import give_up_on
from tests.services.locate import MARIADB
from tests.services.mariadb import MariadbServer

LOCKS = re.compile(r"^RECORD LOCKS .* index `?(\w+)`? of table \S+\.`?(\w+)`? trx id \d+ (.*)$", re.MULTILINE)
ROW = "locks rec but not gap"
SHOWING_LOCKS = {"innodb-status-output-locks": "ON", "innodb-flush-log-at-trx-commit": "0"}


@pytest.fixture(scope="module")
def database(pytestconfig: pytest.Config) -> Iterator[DatabaseOnBench]:
    if missing := PrivateMariaDB.missing_program():
        give_up_on(MARIADB, f"a private instance needs {missing}", pytestconfig)
    with PrivateMariaDB(SHOWING_LOCKS) as server, MariadbServer(server.url, origin="").database() as url:
        database = DatabaseOnBench(url)
        yield database
        database.close()


def locks_of(store: Bench, thread: int) -> list[tuple[str, str, str]]:
    """The table, index and mode of each lock on records that a session's transaction holds."""
    [(*_, status)] = store.rows("show engine innodb status")
    [own] = [part for part in str(status).split("---TRANSACTION ") if f"thread id {thread}," in part]
    return [(table, index, mode) for index, table, mode in LOCKS.findall(own)]


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
@pytest.mark.parametrize("held", HELD_OPEN)
def test_a_callers_transaction_locks_rows_and_no_gaps(database: DatabaseOnBench, held: str, isolation: str) -> None:
    database.empty()
    store = Bench(database, Colour.SYNC)
    operation = HELD_OPEN[held](store)
    caller = open_pymysql(store.url)
    with caller, caller.cursor() as cursor:
        cursor.execute(f"set session transaction isolation level {isolation}")
        caller.begin()
        cursor.execute("insert into stagepost_rate values ('of the caller', 0)")
        cursor.execute("select count(*) from stagepost_queue")
        run_in(caller, operation, clock=store.clock)

        locks = locks_of(store, caller.thread_id())

    assert [lock for lock in locks if ROW not in lock[2]] == []
