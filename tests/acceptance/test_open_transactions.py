"""Callers keep transactions open at their driver's default isolation, and work goes on meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import msgspec
import pytest

from stagepost import App, JobContext, JobState
from stagepost.store.counting import count_by_state
from tests.acceptance.conftest import quick_settings
from tests.acceptance.helpers import notes, work, write
from tests.conformance.bench import DatabaseOnBench
from tests.conformance.caller_kinds import open_psycopg, open_pymysql

pytestmark = pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True)
WAITING = 200
SLOTS = 10


@pytest.fixture
def app(database: DatabaseOnBench) -> Iterator[App]:
    database.empty()
    with database.store.transaction() as connection:
        connection.execute("delete from effect", {})
    app = App(settings=msgspec.structs.replace(quick_settings(database.url), concurrency=SLOTS))
    yield app
    app.close()


def connect(database: DatabaseOnBench) -> Any:
    """Connect as an application does: the driver's defaults, among them its isolation."""
    return open_pymysql(database.url) if database.url.startswith("mysql") else open_psycopg(database.url)


def completed(app: App) -> int:
    return app.store.run(count_by_state())[JobState.COMPLETED]


def test_a_worker_drains_the_queue_while_a_transaction_that_enqueued_a_job_is_open(
    app: App, database: DatabaseOnBench
) -> None:
    @app.task
    def greet(number: int) -> None: ...

    greet.enqueue_many([(number,) for number in range(WAITING)])
    with closing(connect(database)) as tx:
        greet.using(tx).enqueue(WAITING)

        work(app)

        assert completed(app) == WAITING
        tx.commit()
    work(app)
    assert completed(app) == WAITING + 1


def test_jobs_end_during_concurrent_web_requests(app: App, database: DatabaseOnBench) -> None:
    @app.task
    def greet(number: int) -> None: ...

    with ExitStack() as stack:
        requests = [stack.enter_context(closing(connect(database))) for _ in range(8)]
        for number, tx in enumerate(requests):
            write(tx, f"request {number}")
            greet.using(tx).enqueue(number)
        for number, tx in enumerate(requests):  # there are always some open
            tx.commit()
            work(app)
            assert completed(app) == number + 1
            write(tx, f"request {number + 8}")
            greet.using(tx).enqueue(number)


def test_unique_keys_beside_those_of_an_open_transaction_are_free(app: App, database: DatabaseOnBench) -> None:
    @app.task
    def greet(number: int) -> None: ...

    greet.using(unique_key="guest:50").enqueue(0)
    work(app)
    with closing(connect(database)) as tx, closing(connect(database)) as other:
        held = greet.using(tx, unique_key="guest:50").enqueue(0)
        beside = [greet.using(other, unique_key=f"guest:{at}").enqueue(at) for at in (4, 49, 51, 501, 6)]
        other.commit()

        work(app)

        assert held.is_new
        assert all(handle.is_new for handle in beside)
        assert completed(app) == 1 + len(beside)
        tx.commit()


def test_handlers_that_complete_in_their_own_transactions_do_not_disturb_each_other(
    app: App, database: DatabaseOnBench
) -> None:
    @app.task
    def charge(job: JobContext, number: int) -> None:
        with closing(connect(database)) as tx:
            write(tx, f"charged {number:03}")
            job.complete(tx, None)
            tx.commit()

    asked = charge.enqueue_many([(number,) for number in range(WAITING)])
    work(app)

    assert notes(app) == [f"charged {number:03}" for number in range(WAITING)]
    assert {app.client.job(handle.id).failures for handle in asked} == {0}
