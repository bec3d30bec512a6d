"""F75: values too large for a server that accepts only short statements, together or alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import asyncmy
import pymysql
import pytest
from pika import BasicProperties

from stagepost.clock import SystemClock
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database import Store
from stagepost.database.async_store import AsyncStore
from stagepost.database.transaction import run_in, run_in_async
from stagepost.errors import ValueTooLarge
from stagepost.loops.signals import Signals
from stagepost.store.jobs import enqueue, enqueue_many
from stagepost.store.outbox import next_messages
from stagepost.transport.rabbitmq.consumed_queue import Delivery
from stagepost.worker.unreadable_messages import UnreadableMessages
from tests.conformance.bench import mysql_options
from tests.depth import sized
from tests.fault.arena import LASTING_LEASE, Arena, jobs_of
from tests.fault.backends import Backend, opened
from tests.fault.conftest import WITHOUT_TLS
from tests.fault.nursery import Nursery
from tests.fault.servers import PrivateMariaDB
from tests.services import mariadb
from tests.services.fixtures import give_up_on
from tests.services.locate import MARIADB
from tests.services.mariadb import MariadbServer

MOST_BYTES = 1_048_576
SMALL_PACKETS = mariadb.UNSYNCED | {"max-allowed-packet": "1M"}
JOBS = sized(60, 600)
RESULT = 200_000
TOO_LARGE = 950_000
"""Within the limit of its task, and more than a statement takes by the time it is in one."""


@pytest.fixture(scope="module")
def small_packets(pytestconfig: pytest.Config) -> Iterator[Backend]:
    """A server that closes the connection over a statement of more than a million bytes."""
    if missing := PrivateMariaDB.missing_program():
        give_up_on(MARIADB, f"a private instance needs {missing}", pytestconfig)
    with (
        PrivateMariaDB(SMALL_PACKETS) as server,
        MariadbServer(server.url, origin="").database() as url,
        opened("mariadb", url.partition("?")[0] + WITHOUT_TLS) as backend,
    ):
        yield backend


@pytest.fixture
def arena(small_packets: Backend, nursery: Nursery, tmp_path: Path) -> Iterator[Arena]:
    small_packets.empty()
    yield Arena(small_packets, nursery, tmp_path)
    nursery.kill_all()


def test_results_and_errors_that_are_too_large_together_are_all_written(arena: Arena) -> None:
    jobs = arena.enqueue("give_large", JOBS, size=RESULT) + arena.enqueue("fail_large", JOBS, tries=1)

    worker = arena.start_worker(concurrency=50, prefetch=200, lease_seconds=LASTING_LEASE)
    arena.wait_for_end(jobs)

    evidence = arena.verify()
    assert {(job.attempt, job.crashes) for job in evidence.jobs.values()} == {(1, 0)}
    [(completed,)] = arena.backend.rows("select count(*) from stagepost_job_history where state = 'completed'")
    [(failed,)] = arena.backend.rows("select count(*) from stagepost_failure")
    assert (completed, failed) == (JOBS, JOBS)
    assert "failed and tries again" not in worker.logged()
    assert "could not be written" not in worker.logged()


def test_a_worker_with_large_results_stops_when_asked_and_keeps_no_job(arena: Arena) -> None:
    arena.enqueue("give_large", JOBS, size=RESULT)
    worker = arena.start_worker(concurrency=20, prefetch=200, lease_seconds=LASTING_LEASE, shutdown_timeout_seconds=60)
    arena.wait(lambda: bool(arena.notes("start")), "the first to start")

    worker.terminate()

    assert worker.wait() == 0
    jobs = arena.jobs().values()
    assert {job.state for job in jobs} <= {"queued", "completed"}
    assert {job.crashes for job in jobs} == {0}


def test_a_result_too_large_for_any_statement_fails_its_own_job_and_says_what_to_do(arena: Arena) -> None:
    [alone] = arena.enqueue("give_large", 1, size=TOO_LARGE)
    others = arena.enqueue("give_large", 20, size=1000)

    arena.start_worker(concurrency=30, lease_seconds=LASTING_LEASE)
    arena.wait_for_end([alone, *others])

    assert arena.job(alone).state == "failed"
    assert {arena.job(job_id).state for job_id in others} == {"completed"}
    [(error,)] = arena.backend.rows("select error from stagepost_job_history where id = :id", id=alone)
    assert f"the server takes {MOST_BYTES:,}" in error
    assert "`max_allowed_packet`" in error
    assert {job.attempt for job in arena.jobs().values()} == {1}


def test_arguments_too_large_for_any_statement_are_an_error_at_the_call_and_nothing_is_stored(arena: Arena) -> None:
    large = jobs_of("take_large", text="\"'" * 300_000)
    small = jobs_of("take_large", 150, text="x")

    with contextlib.closing(Store.at(arena.url)) as store:
        for operation in (enqueue(large[0]), enqueue_many([*small, *large]), enqueue_many([*small[:5], *large])):
            with pytest.raises(ValueTooLarge, match=r"the server takes 1,048,576.*max_allowed_packet") as refusal:
                store.run(operation)
            assert refusal.value.size > MOST_BYTES == refusal.value.limit
        assert not arena.jobs()

        assert len(store.run(enqueue_many(small))) == 150


def test_too_large_arguments_in_a_callers_transaction_are_an_error_and_the_connection_stays_usable(
    arena: Arena,
) -> None:
    large = jobs_of("take_large", text="\"'" * 300_000)
    many = jobs_of("take_large", 40, text="\"'" * 50_000)
    options = mysql_options(arena.url)
    database = arena.url.partition("?")[0].rpartition("/")[2]

    with contextlib.closing(pymysql.connect(**options, database=database, ssl_disabled=True)) as tx:
        with pytest.raises(ValueTooLarge, match="max_allowed_packet"):
            run_in(tx, enqueue_many(large), clock=SystemClock())
        run_in(tx, enqueue_many(many[:20]), clock=SystemClock())
        tx.commit()

    async def in_async() -> None:
        tx = await asyncmy.connect(**options, db=database)
        with pytest.raises(ValueTooLarge, match="max_allowed_packet"):
            await run_in_async(tx, enqueue(large[0]), clock=SystemClock())
        await run_in_async(tx, enqueue_many(many[20:]), clock=SystemClock())
        await tx.commit()
        tx.close()

    asyncio.run(in_async())
    assert set(arena.jobs()) == {job.id for job in many}


def test_the_beginning_of_a_message_too_large_for_any_statement_is_stored(arena: Arena) -> None:
    """Lest it come again and again, and hold up those behind it."""
    added = 0

    async def add() -> None:
        nonlocal added
        store = AsyncStore(opened_store)
        unreadable = UnreadableMessages(store, Signals(), settings=RabbitmqSettings())
        await unreadable.add([(delivery(b"{", 1), "no JSON"), (delivery(b"\"'" * 1_000_000, 2), "no JSON, either")])
        added = unreadable.added
        store.close()

    with contextlib.closing(Store.at(arena.url)) as opened_store:
        asyncio.run(add())
        small, large = opened_store.run(next_messages(most=9))

    assert added == 2
    assert b"no JSON" in small.message.body
    assert len(large.message.body) < 200_000
    assert b"2,000,000 bytes, of which the first 65,536 are kept" in large.message.body


def delivery(body: bytes, tag: int) -> Delivery:
    return Delivery("jobs", 1, tag, body, redelivered=False, routing_key="jobs", properties=BasicProperties())
