"""F18, F19, F39: forks with connections open, coroutines cancelled in the middle, a listener that is cut off."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random

import pytest

from stagepost.client import Client
from stagepost.database import Store
from stagepost.database.async_store import AsyncStore
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.store.health import ping
from stagepost.task import Registry
from tests.depth import sized
from tests.fault.arena import LASTING_LEASE, Arena
from tests.fault.backends import SERVERS, Backend
from tests.fault.leaks import no_open_transaction

FORKS = sized(10, 30)
CANCELLATIONS = sized(60, 400)


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_handlers_may_fork_and_both_processes_may_use_the_database(arena: Arena) -> None:
    """F18. Not with SQLite, whose own locks do not survive a fork while other threads hold them."""
    forking = arena.enqueue("transfer_forking", FORKS)
    others = arena.enqueue("transfer", 200) + arena.enqueue("note", 200)
    worker = arena.start_worker(concurrency=4, lease_seconds=LASTING_LEASE)

    arena.wait_for_end(forking + others, seconds=120)

    evidence = arena.verify()
    assert {(job.state, job.failures, job.crashes) for job in evidence.jobs.values()} == {("completed", 0, 0)}
    assert len(arena.notes("in child")) == FORKS
    assert worker.status is None
    no_open_transaction(arena.backend)


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_a_forked_child_has_sessions_of_its_own(backend: Backend) -> None:
    """F18: two processes on one socket would read each other's answers."""
    own_session = {"postgres": "select pg_backend_pid()", "mariadb": "select connection_id()"}[backend.name]
    with contextlib.closing(Store.at(backend.url, pool_size=1)) as store:

        def session() -> int:
            with store.transaction() as connection:
                [(number,)] = connection.execute(own_session, None)
                return int(number)

        parents = session()
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            os.write(writer, str(session()).encode())
            os._exit(0)
        os.waitpid(child, 0)
        childs = int(os.read(reader, 100))
        os.close(reader)
        os.close(writer)

        assert childs != parents
        assert session() == parents


async def test_calls_that_are_cancelled_leave_no_connection_on_loan_and_no_lock(backend: Backend) -> None:
    """F19."""
    chooser = random.Random(19)  # noqa: S311 - repeatable
    store = Store.at(backend.url, pool_size=4)
    calls = AsyncStore(store)
    client = Client(store, Registry(), async_store=calls)
    asked = [new_id() for _ in range(CANCELLATIONS)]
    outcomes = {"cancelled": 0, "done": 0}

    async def enqueue_and_look(job_id: str) -> None:
        await client.enqueue_async(NewJob(id=job_id, task_name="t", payload="{}"))
        await client.job_async(job_id)

    for job_id in asked:
        call = asyncio.create_task(enqueue_and_look(job_id))
        await asyncio.sleep(chooser.uniform(0, 0.002))  # the moment is what is tried here
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        outcomes["cancelled" if call.cancelled() else "done"] += 1
    await asyncio.to_thread(calls.close)

    assert outcomes["cancelled"] > CANCELLATIONS // 40
    assert store.pool.in_use == 0
    store.run(ping())
    no_open_transaction(backend)
    found = {str(job_id) for (job_id,) in backend.rows("select id from stagepost_job")}
    assert found <= set(asked)
    if backend.name == "postgres":
        locks = backend.rows(
            "select locktype from pg_locks join pg_stat_activity using (pid) "
            "where datname = current_database() and pid <> pg_backend_pid() "
            "and backend_type = 'client backend'"  # autovacuum has locks of its own
        )
        assert locks == []
    store.close()


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_listener_that_is_cut_off_delays_nothing_and_listens_again(arena: Arena) -> None:
    """F39: with polls seconds apart, what is picked up at once was heard."""
    worker = arena.start_worker(poll_shortest_seconds=1.0, poll_longest_seconds=2.0)
    arena.wait(lambda: bool(listeners(arena.backend)), "the worker to listen")

    ended = listeners(arena.backend)
    for session in ended:
        arena.backend.end_session(session)
    missed = arena.enqueue("note", 3)
    arena.wait_for_end(missed)
    arena.wait(lambda: bool(listeners(arena.backend) - ended), "the worker to listen again")

    arena.verify()
    assert "no wake-ups" in worker.logged()


def listeners(backend: Backend) -> set[int]:
    """The sessions that listen, or just did."""
    return {session for session, _, statement in backend.open_sessions() if "listen" in str(statement).lower()}
