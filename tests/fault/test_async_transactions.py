"""`async with app.transaction()` under faults: lost replies, half-open sockets, cancellation at any moment, forks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncmy
import psycopg
import pytest

from stagepost import App, Settings
from stagepost.errors import StoreUnavailable
from tests.depth import sized
from tests.fault.async_transactions import insert_effect
from tests.fault.backends import SERVERS, Backend
from tests.fault.leaks import no_open_transaction
from tests.fault.proxy import FaultProxy
from tests.fault.servers import PrivateMariaDB

CANCELLATIONS = sized(60, 400)
NOTICED_SECONDS = 20.0
REPLACED_SECONDS = NOTICED_SECONDS + 10.0
"""A connection that is silent when a transaction begins is replaced by a new one, which is silent, too."""
on_servers = pytest.mark.parametrize("backend", SERVERS, indirect=True)


def app_at(url: str, **settings: Any) -> App:
    return App(settings=Settings(database_url=url, **settings), auto_migrate=False)


def style_of(backend: Backend) -> str:
    return "?" if backend.name == "sqlite" else "%s"


def effects(backend: Backend) -> set[str]:
    return {str(job_id).strip() for (job_id,) in backend.rows("select job_id from ledger")}


@on_servers
async def test_a_commit_whose_reply_is_lost_raises_and_has_happened(backend: Backend) -> None:
    with FaultProxy.to(backend.url) as proxy:
        app = app_at(proxy.url_for(backend.url), pool_size=1)

        async def pay(name: str) -> None:
            async with app.transaction() as tx:
                await insert_effect(tx, style_of(backend), name, 1)

        await pay("first")
        trap = proxy.drop_reply()
        with pytest.raises(StoreUnavailable, match="may or may not be committed"):
            await pay("second")
        trap.wait()
        assert trap.fired == 1
        await pay("third")
        await app.close_async()

    assert effects(backend) == {"first", "second", "third"}


@on_servers
@pytest.mark.prove
async def test_a_half_open_socket_is_noticed_within_twenty_seconds(backend: Backend) -> None:
    """F26: at the beginning of a transaction, on a new connection, at a commit and at a rollback."""
    with FaultProxy.to(backend.url) as proxy:
        url = proxy.url_for(backend.url)
        used, new, committing, rolling_back = apps = [app_at(url, pool_size=1) for _ in range(4)]
        for app in (used, committing, rolling_back):
            async with app.transaction():
                pass
        commit, rollback = committing.transaction(), rolling_back.transaction()
        for transaction in (commit, rollback):
            await transaction.__aenter__()
        proxy.swallow()
        unlucky = ZeroDivisionError()

        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: used.transaction().__aenter__(),
            lambda: new.transaction().__aenter__(),
            lambda: commit.__aexit__(None, None, None),
            lambda: rollback.__aexit__(ZeroDivisionError, unlucky, None),
        ]
        took = await asyncio.gather(*map(duration_of, calls))
        proxy.pass_through()
        for app in apps:
            await app.close_async()

    limits = [REPLACED_SECONDS, NOTICED_SECONDS, NOTICED_SECONDS, NOTICED_SECONDS]
    assert all(seconds < limit for seconds, limit in zip(took, limits, strict=True)), took


async def duration_of(call: Callable[[], Awaitable[object]]) -> float:
    began = time.monotonic()
    with contextlib.suppress(StoreUnavailable, ZeroDivisionError, psycopg.Error, asyncmy.errors.Error):
        await asyncio.wait_for(call(), 2 * REPLACED_SECONDS)
    return time.monotonic() - began


async def test_transactions_that_are_cancelled_at_any_moment_leave_nothing_behind(backend: Backend) -> None:
    """F19."""
    chooser = random.Random(19)  # noqa: S311 - repeatable
    app = app_at(backend.url, pool_size=2)
    done: set[str] = set()

    async def pay(name: str) -> None:
        async with app.transaction() as tx:
            await insert_effect(tx, style_of(backend), name, 1)
            await insert_effect(tx, style_of(backend), name, 2)
        done.add(name)

    for number in range(CANCELLATIONS):
        calls = [asyncio.create_task(pay(f"{number}-{one}")) for one in range(3)]
        await asyncio.sleep(chooser.uniform(0, 0.004))  # the moment is what is tried here
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    pool = app.async_transactions._pools[asyncio.get_running_loop()]
    lent = pool.in_use
    await pay("last")
    await app.close_async()

    assert lent == 0
    no_open_transaction(backend)
    found = backend.rows("select job_id, count(*) from ledger group by job_id")
    assert {int(count) for _, count in found} == {2}
    assert done <= {str(name).strip() for name, _ in found}
    assert len(done) < 3 * CANCELLATIONS


@on_servers
def test_a_forked_child_has_sessions_of_its_own(backend: Backend) -> None:
    """F18: two processes on one socket would read each other's answers."""
    app = app_at(backend.url, pool_size=1)
    asking = {"postgres": "select pg_backend_pid()", "mariadb": "select connection_id()"}[backend.name]

    async def session() -> int:
        async with app.transaction() as tx, tx.cursor() as cursor:
            await cursor.execute(asking)
            return int((await cursor.fetchone())[0])

    with asyncio.Runner() as runner:
        parents = runner.run(session())
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            try:
                asyncio.set_event_loop(None)
                os.write(writer, str(asyncio.run(session())).encode())
                app.close()  # leaves the connections of its parent open
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        childs = int(os.read(reader, 100))
        os.close(reader)
        os.close(writer)

        assert childs != parents
        assert runner.run(session()) == parents
    app.close()


@pytest.fixture
def encrypting_server() -> Iterator[tuple[PrivateMariaDB, Path]]:
    """A server that can encrypt, and its certificate."""
    if shutil.which("openssl") is None or PrivateMariaDB.missing_program():
        pytest.skip("needs openssl and a MariaDB server")
    server = PrivateMariaDB()
    key, certificate = server.directory / "key.pem", server.directory / "certificate.pem"
    options = ["-x509", "-nodes", "-newkey", "rsa:2048", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run(["openssl", "req", *options, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    key.chmod(0o644)
    server.settings |= {"ssl-key": str(key), "ssl-cert": str(certificate)}
    with server:
        yield server, certificate


@pytest.mark.prove
async def test_connections_are_encrypted_as_the_blocking_ones_are(
    encrypting_server: tuple[PrivateMariaDB, Path],
) -> None:
    """asyncmy encrypts always or never by itself; PyMySQL does if the server can."""
    server, certificate = encrypting_server
    asking = "show session status like 'Ssl_cipher'"
    found: list[tuple[bool, bool]] = []
    for option in ("", "?ssl_disabled=1", f"?ssl_ca={certificate}"):
        app = app_at(server.url + option)
        async with app.transaction() as tx, tx.cursor() as cursor:
            await cursor.execute(asking)
            [(_, asynchronous)] = await cursor.fetchall()
        with app.transaction() as tx, tx.cursor() as cursor:
            cursor.execute(asking)
            [(_, blocking)] = cursor.fetchall()
        found.append((bool(asynchronous), bool(blocking)))
        await app.close_async()

    assert found == [(True, True), (False, False), (True, True)]


@pytest.fixture(autouse=True)
async def _no_task_is_left() -> AsyncIterator[None]:
    yield
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []
