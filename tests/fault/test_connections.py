"""F20, F26: sessions killed by an operator, and sockets whose other end disappeared silently."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pymysql
import pytest

from stagepost.client import App
from stagepost.database import Store, connection
from stagepost.database.store import CALL_SECONDS
from stagepost.errors import StoreUnavailable
from stagepost.store.health import ping
from tests.depth import sized
from tests.fault.arena import LASTING_LEASE, Arena
from tests.fault.backends import SERVERS, Backend, execute
from tests.fault.leaks import Footprint, no_bigger_than, no_open_transaction, pools_empty
from tests.fault.proxy import FaultProxy
from tests.services.processes import wait_until

on_servers = pytest.mark.parametrize("backend", SERVERS, indirect=True)
SESSIONS_ENDED = sized(15, 150)
IDLE = 3
NOTICED_SECONDS = 20.0
LEASE_OF_CUT_OFF = 30.0
"""A sixth of it, by which handlers are stopped early, is more than a busy machine is late."""


@on_servers
def test_workers_whose_sessions_are_killed_constantly_lose_and_duplicate_nothing(arena: Arena) -> None:
    """F20."""
    worker = arena.start_worker(concurrency=4)
    arena.wait_for_end(arena.enqueue("transfer", 50) + arena.enqueue("note", 50))
    before = Footprint.of(worker.pid)

    with arena.sampling():
        ended = end_sessions(arena, SESSIONS_ENDED)
        arena.wait_for_end(seconds=120)

    arena.verify()
    assert ended >= SESSIONS_ENDED
    no_open_transaction(arena.backend)
    pools_empty(worker)
    no_bigger_than(before, worker.pid)


def end_sessions(arena: Arena, number: int) -> int:
    """End one session after the other while there is work."""
    ended = 0
    while ended < number:
        if ended % 50 == 0:
            for task in ("transfer", "transfer_flaky", "note", "note_flaky", "transfer_async"):
                arena.enqueue(task, 10)
        sessions = arena.backend.open_sessions()
        if sessions:
            arena.backend.end_session(arena.random.choice(sessions)[0])
            ended += 1
        time.sleep(0.01)
    return ended


class Unlucky(Exception):
    """An error that the body of a transaction raises itself."""


@pytest.fixture
def app(backend: Backend) -> Iterator[App]:
    with contextlib.closing(App(backend.url, auto_migrate=False)) as app:
        yield app


@on_servers
@pytest.mark.parametrize("lender", ["app", "store"])
def test_connections_that_were_ended_while_idle_are_replaced_without_an_error(
    backend: Backend, app: App, lender: str
) -> None:
    """F20: all of a pool's at once, as a restart of the server or a firewall does it."""
    transaction = app.transaction if lender == "app" else app.store.transaction
    with contextlib.ExitStack() as all_at_once:
        for _ in range(IDLE):
            all_at_once.enter_context(transaction())
    assert end_all_sessions(backend) == IDLE

    with transaction() as first, transaction() as second:
        answers = [execute(getattr(tx, "raw", tx), "select 7") for tx in (first, second)]

    assert answers == [[(7,)], [(7,)]]


@on_servers
def test_the_error_of_a_body_is_raised_as_it_is_though_its_connection_died(backend: Backend, app: App) -> None:
    unlucky = Unlucky()

    def fail_without_a_connection() -> None:
        with app.transaction() as tx:
            execute(tx, "insert into ledger (job_id, attempt, effect, at) values ('lost', 1, 'done', 0)")
            assert end_all_sessions(backend) == 1
            raise unlucky

    with pytest.raises(Unlucky) as caught:
        fail_without_a_connection()

    assert caught.value is unlucky
    assert app.users_store.pool.in_use == 0
    with app.transaction() as tx:
        assert execute(tx, "select count(*) from ledger") == [(0,)]


def end_all_sessions(backend: Backend) -> int:
    """End every session but the tests' own, and wait until they are gone; returns how many there were."""
    sessions = backend.open_sessions()
    for session in sessions:
        backend.end_session(session[0])
    wait_until(lambda: not backend.open_sessions(), "the sessions to end", seconds=60)
    return len(sessions)


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
@pytest.mark.prove
def test_a_half_open_socket_is_noticed_within_twenty_seconds(mariadb_backend: Backend, backend: Backend) -> None:
    """F26: on a connection in use, on a new one, at the commit of a handler's transaction; both databases at once."""
    with contextlib.ExitStack() as stack:
        calls: dict[str, Callable[[], object]] = {}
        for each in (backend, mariadb_backend):
            proxy = stack.enter_context(FaultProxy.to(each.url))
            calls |= half_open_calls(each.name, proxy.url_for(each.url), stack)
            proxy.swallow()

        took = durations(calls)

    assert {name: seconds for name, seconds in took.items() if not seconds < NOTICED_SECONDS} == {}
    assert CALL_SECONDS < NOTICED_SECONDS


def half_open_calls(name: str, url: str, stack: contextlib.ExitStack) -> dict[str, Callable[[], object]]:
    """Calls that must fail in time once nothing arrives any more."""
    used, new, lent = (stack.enter_context(contextlib.closing(Store.at(url, pool_size=1))) for _ in range(3))
    used.run(ping())
    transaction = contextlib.ExitStack()
    transaction.enter_context(lent.transaction())
    return {
        f"{name}: a connection in use": lambda: used.run(ping(), patience_seconds=0),
        f"{name}: a new connection": lambda: new.run(ping(), patience_seconds=0),
        f"{name}: a commit": transaction.close,
    }


def durations(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Make all calls at once; how long each took, or infinity."""
    took = dict.fromkeys(calls, float("inf"))

    def measure(name: str) -> None:
        began = time.monotonic()
        with contextlib.suppress(StoreUnavailable, psycopg.Error, pymysql.MySQLError, OSError):
            calls[name]()
        took[name] = time.monotonic() - began

    threads = [threading.Thread(target=measure, args=[name], name=name, daemon=True) for name in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(NOTICED_SECONDS + 1)
    return took


def test_a_session_whose_set_up_is_never_answered_is_aborted(
    postgres_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 2)  # libpq accepts no less
    connect = psycopg.connect
    errors: list[StoreUnavailable] = []
    with FaultProxy.to(postgres_backend.url) as proxy:

        def connect_and_hang(*arguments: Any, **options: Any) -> Any:
            opened = connect(*arguments, **options)
            proxy.swallow()
            return opened

        monkeypatch.setattr(psycopg, "connect", connect_and_hang)
        database = connection.database_at(proxy.url_for(postgres_backend.url))

        def open_session() -> None:
            try:
                database.connect()
            except StoreUnavailable as error:
                errors.append(error)

        thread = threading.Thread(target=open_session, daemon=True)
        thread.start()
        thread.join(NOTICED_SECONDS)
        assert len(errors) == 1


@on_servers
@pytest.mark.prove
def test_a_worker_cut_off_from_its_database_stops_its_handlers_before_another_can_start_them(arena: Arena) -> None:
    """Its socket is half-open: no call fails, and none comes back."""
    with FaultProxy.to(arena.backend.url) as proxy:
        arena.url = proxy.url_for(arena.backend.url)
        worker = arena.start_worker(lease_seconds=LEASE_OF_CUT_OFF)
        jobs = arena.enqueue("transfer_until_stopped", 3, seconds=600)
        arena.wait(lambda: len(arena.notes("start")) == len(jobs), "all to start")
        arena.url = arena.backend.url
        arena.start_worker(lease_seconds=LASTING_LEASE)

        proxy.swallow()
        arena.wait(lambda: len(arena.notes("start")) == 2 * len(jobs), "the other worker to start them")
        worker.kill()

    for job_id in jobs:  # the sink has what both wrote, in one order
        notes = [(note.attempt, note.what) for note in arena.sink.notes() if note.job_id == job_id]
        assert notes == [(1, "start"), (1, "stopped"), (2, "start")]
