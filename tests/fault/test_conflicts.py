"""F29, F33, F34, F37: transactions that collide are repeated as a whole, invisibly to the caller."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pymysql
import pytest

from stagepost.database import Store
from stagepost.database.connection import Connection, Database, database_at
from stagepost.database.transaction import run_in
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob, NewJob
from stagepost.model.outcome import Completed, Failed
from stagepost.store.jobs import enqueue_many
from stagepost.store.leases import claim, promote_due, renew, rescue_expired
from stagepost.store.settlement import Settlement
from stagepost.store.settling import settle
from tests.depth import sized
from tests.fault.arena import LEASE, Arena
from tests.fault.backends import Backend, connect, execute
from tests.fault.injection import undo
from tests.services.processes import wait_until

THREADS = 6
ROUNDS = sized(4, 12)
PATIENCE_SECONDS = 60.0
"""A deadline, not an expectation."""
WAITING = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
on_mariadb = pytest.mark.parametrize("backend", ["mariadb"], indirect=True)
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


def keyed_jobs(keys: list[str]) -> list[NewJob]:
    return [NewJob(id=new_id(), task_name="t", payload="{}", unique_key=key) for key in keys]


def at_once(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run the same work in several threads, all let go at one moment; an error in any of them is raised."""
    barrier = threading.Barrier(threads)

    def begin(number: int) -> None:
        barrier.wait(PATIENCE_SECONDS)
        work(number)

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(begin, number) for number in range(threads)]:
            done.result()


def test_bulk_enqueues_of_the_same_keys_in_any_order_never_fail(backend: Backend) -> None:
    """F29: every round has keys that nobody holds yet, since only the first to come take locks that last."""
    rounds = [[f"round-{number}-key-{key}" for key in range(40)] for number in range(3)]
    found: list[set[str]] = []
    conflicts: list[float] = []
    next_round = threading.Barrier(THREADS)

    def enqueue_shuffled(number: int) -> None:
        chooser = random.Random(number)  # noqa: S311 - repeatable
        with contextlib.closing(
            Store.at(backend.url, pool_size=1, pause=conflicts.append, call_seconds=PATIENCE_SECONDS)
        ) as store:
            for keys in rounds:
                next_round.wait(PATIENCE_SECONDS)
                enqueued = store.run(enqueue_many(keyed_jobs(chooser.sample(keys, len(keys)))))
                found.append({job.id for job in enqueued})

    at_once(enqueue_shuffled)

    assert len(found) == THREADS * len(rounds)
    if backend.name == "postgres":  # which locks nothing but the keys themselves
        assert conflicts == []
    rows = backend.rows("select unique_key, id from stagepost_job")
    assert sorted(key for key, _ in rows) == sorted(key for keys in rounds for key in keys)
    assert set().union(*found) == {str(job_id) for _, job_id in rows}


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
@pytest.mark.parametrize("avoided", ["hashjoin", "nestloop", "hashjoin and nestloop"])
def test_unique_keys_are_taken_in_one_order_whatever_the_order_they_are_given_in(
    backend: Backend, avoided: str
) -> None:
    """F29: who waits for the first key has not taken the second, so that the other can go on; whatever is planned."""
    conflicts: list[float] = []
    with (
        contextlib.closing(Store.at(backend.url, pool_size=1)) as store,
        contextlib.closing(
            Store.at(backend.url, pool_size=1, pause=conflicts.append, call_seconds=PATIENCE_SECONDS)
        ) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        with other.transaction() as session:
            for way in avoided.split(" and "):
                session.execute(f"set enable_{way} = off", None)

        with store.transaction() as connection:
            store.drive(enqueue_many(keyed_jobs(["first"])), connection)
            waiting = pool.submit(other.run, enqueue_many(keyed_jobs(["second", "first"])))
            wait_until(lambda: bool(backend.rows(WAITING)), "the other to wait", seconds=PATIENCE_SECONDS)
            store.drive(enqueue_many(keyed_jobs(["second"])), connection)
        found = waiting.result(PATIENCE_SECONDS)

    assert conflicts == []
    assert [job.is_new for job in found] == [False, False]


def test_settling_and_renewing_the_same_jobs_in_any_order_never_fails(backend: Backend) -> None:
    """F29: what a worker and a rescuer do at the same moment to the same rows."""
    with contextlib.closing(Store.at(backend.url, pool_size=THREADS)) as store:
        store.run(enqueue_many([NewJob(id=new_id(), task_name="t", payload="{}") for _ in range(60)]))
        jobs = store.run(claim("default", owner="me", task_names=["t"], slots=60, lease=timedelta(microseconds=1)))
        accepted: list[int] = []

        def disturb(number: int) -> None:
            chooser = random.Random(number)  # noqa: S311 - repeatable
            shuffled = chooser.sample(jobs, len(jobs))
            if number % 3 == 0:
                store.run(renew([(job.id, job.attempt) for job in shuffled], owner="me", lease=timedelta(0)))
            elif number % 3 == 1:
                held = store.run(settle([Settlement.of(job, Completed()) for job in shuffled[:30]]))
                accepted.append(sum(held.values()))
            else:
                store.run(rescue_expired(grace=timedelta(0)))

        at_once(disturb)
        at_once(disturb)

        [(live,)] = backend.rows("select count(*) from stagepost_job")
        [(ended,)] = backend.rows("select count(*) from stagepost_job_history")
        assert live + ended == 60


class IsolatedDatabase:
    """MariaDB with sessions of another isolation than we ask for, as a pooler or `init_connect` might give."""

    def __init__(self, database: Database, level: str, *, snapshot_isolation: bool) -> None:
        self._database = database
        self._statements = [
            f"set session transaction isolation level {level}",
            f"set session innodb_snapshot_isolation = {'on' if snapshot_isolation else 'off'}",
        ]
        self.dialect, self.style = database.dialect, database.style
        self.shares_one_connection, self.is_memory = False, False
        self.address = database.address

    def connect(self) -> Connection:
        connection = self._database.connect()
        for statement in self._statements:
            connection.execute(statement, None)
        return connection


@on_mariadb
@pytest.mark.parametrize("snapshot_isolation", [False, True], ids=["plain", "snapshot isolation"])
@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_mariadb_keeps_its_promises_at_every_isolation(
    backend: Backend, level: str, *, snapshot_isolation: bool
) -> None:
    """F33."""
    if not backend.rows("show variables like 'innodb_snapshot_isolation'"):
        pytest.skip("this server has no innodb_snapshot_isolation")
    keys = [f"key-{number}" for number in range(60)]
    completed: list[str] = []

    def produce_and_work(number: int) -> None:
        chooser = random.Random(number)  # noqa: S311 - repeatable
        database = IsolatedDatabase(database_at(backend.url), level, snapshot_isolation=snapshot_isolation)
        with contextlib.closing(Store(database, pool_size=1, pause=lambda _seconds: None)) as store:
            for _ in range(ROUNDS):
                store.run(enqueue_many(keyed_jobs(chooser.sample(keys, 20))))
                completed.extend(work_once(store, f"worker-{number}", chooser))

    at_once(produce_and_work)

    ended = [
        str(job_id) for (job_id,) in backend.rows("select id from stagepost_job_history where state = 'completed'")
    ]
    assert sorted(completed) == sorted(ended)
    effects = [str(job_id) for (job_id,) in backend.rows("select job_id from ledger")]
    assert sorted(effects) == sorted(ended)
    live = [key for (key,) in backend.rows("select unique_key from stagepost_job")]
    assert len(live) == len(set(live))


def work_once(store: Store, owner: str, chooser: random.Random) -> list[str]:
    """Claim some jobs, complete most of them in transactions of the handler's own, fail the rest."""
    completed = []
    jobs = store.run(claim("default", owner=owner, task_names=["t"], slots=10, lease=timedelta(minutes=1)))
    if jobs:
        store.run(renew([(job.id, job.attempt) for job in jobs], owner=owner, lease=timedelta(minutes=1)))
    for job in jobs:
        if chooser.random() < 0.2:
            store.run(settle([Settlement.of(job, Failed("no", timedelta(0)))]))
        elif complete_in_transaction(store, Settlement.of(job, Completed())):
            completed.append(job.id)
        else:
            store.run(settle([Settlement.of(job, Failed("conflict", timedelta(0)))]))
    store.run(promote_due())
    return completed


def complete_in_transaction(store: Store, change: Settlement) -> bool:
    try:
        with store.transaction() as connection:
            sql = "insert into ledger (job_id, attempt, effect, at) values (%(id)s, %(attempt)s, 'done', 0)"
            connection.execute(sql, {"id": change.id, "attempt": change.attempt})
            [held] = run_in(connection.raw, settle([change]), clock=store.clock).values()
            return held
    except pymysql.OperationalError:  # a conflict, which a handler's own transaction does see
        return False


@contextlib.contextmanager
def blocking(backend: Backend, sql: str, **parameters: Any) -> Iterator[None]:
    """Hold the locks that a statement takes while the body runs."""
    other = connect(backend.url)
    try:
        execute(other, "begin immediate" if backend.name == "sqlite" else "begin")
        execute(other, sql, parameters)
        yield
        undo(backend.dialect.name, other)
    finally:
        other.close()


@pytest.mark.parametrize("backend", ["postgres", "mariadb"], indirect=True)
def test_a_lock_timeout_in_a_handlers_transaction_undoes_all_of_it(backend: Backend) -> None:
    """F34: MariaDB undoes the statement alone; the rest must not be committed."""
    patience = {"postgres": "set lock_timeout = '200ms'", "mariadb": "set session innodb_lock_wait_timeout = 1"}
    with contextlib.closing(Store.at(backend.url, pool_size=1)) as store:
        job = leased(store)
        lock = "select id from stagepost_job where id = :id for update"

        with blocking(backend, lock, id=job.id), pytest.raises(Exception, match=r"(?i)lock"):
            complete_with_effect(store, job, first=patience[backend.name])

        assert backend.rows("select count(*) from ledger") == [(0,)]
        assert store.pool.in_use == 0
        assert store.run(settle([Settlement.of(job, Completed())])) == {(job.id, 1): True}


def complete_with_effect(store: Store, job: LeasedJob, *, first: str) -> None:
    """What a handler does in its own transaction, after a given statement."""
    effect = "insert into ledger (job_id, attempt, effect, at) values (:id, 1, 'done', 0)"
    with store.transaction() as connection:
        connection.execute(first, None)
        execute(connection.raw, effect, {"id": job.id})
        run_in(connection.raw, settle([Settlement.of(job, Completed())]), clock=store.clock)


@pytest.mark.parametrize("backend", ["postgres", "mariadb"], indirect=True)
def test_an_operation_that_meets_a_lock_is_run_again_until_it_is_gone(backend: Backend) -> None:
    """F34, in transactions of our own."""
    patience = {"postgres": "set lock_timeout = '100ms'", "mariadb": "set session innodb_lock_wait_timeout = 1"}
    tried = threading.Event()
    with contextlib.closing(Store.at(backend.url, pool_size=1, pause=lambda _seconds: tried.set())) as store:
        job = leased(store)
        with store.transaction() as connection:
            connection.execute(patience[backend.name], None)

        with ThreadPoolExecutor(1) as pool:
            with blocking(backend, "select id from stagepost_job where id = :id for update", id=job.id):
                settled = pool.submit(store.run, settle([Settlement.of(job, Completed())]))
                assert tried.wait(PATIENCE_SECONDS)
            assert settled.result(timeout=PATIENCE_SECONDS) == {(job.id, 1): True}


def leased(store: Store) -> LeasedJob:
    store.run(enqueue_many([NewJob(id=new_id(), task_name="t", payload="{}")]))
    [job] = store.run(claim("default", owner="me", task_names=["t"], slots=1, lease=timedelta(minutes=1)))
    return job


@on_sqlite
def test_a_busy_sqlite_file_is_waited_for(backend: Backend) -> None:
    """F37."""
    tried = threading.Event()
    with contextlib.closing(Store.at(backend.url, pause=lambda _seconds: tried.set())) as store:
        with store.transaction() as connection:
            connection.raw.execute("pragma busy_timeout = 20")

        with ThreadPoolExecutor(1) as pool:
            with blocking(backend, "select 1"):
                enqueued = pool.submit(store.run, enqueue_many(keyed_jobs(["a"])))
                assert tried.wait(PATIENCE_SECONDS)
            assert enqueued.result(timeout=PATIENCE_SECONDS)[0].is_new


@on_sqlite
def test_workers_survive_a_process_that_holds_sqlites_lock_longer_than_a_lease(arena: Arena) -> None:
    """F37."""
    jobs = arena.enqueue("transfer", 100, seconds=0.01) + arena.enqueue("note", 100)
    arena.start_worker()
    arena.wait(lambda: len(arena.notes("start")) > 5, "work to begin")

    holder = sqlite3.connect(arena.url.partition(":///")[2], isolation_level=None, timeout=60)
    holder.execute("begin immediate")
    threading.Event().wait(2 * LEASE)  # the time is what is tried here
    holder.execute("rollback")
    holder.close()
    arena.wait_for_end(jobs)

    arena.verify()
