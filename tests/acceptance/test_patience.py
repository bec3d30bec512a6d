"""How long calls wait for a database that is away, and what they say of a lock that they hold themselves."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagepost import App, Settings
from stagepost.errors import StoreError, StoreUnavailable
from tests.acceptance.helpers import LIMIT


@pytest.fixture
def away() -> Iterator[App]:
    """An app whose database refuses connections, and which waits for it without taking time."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://shop@127.0.0.1:{taken.getsockname()[1]}/shop"
        with closing(App(settings=Settings(database_url=url, patience_seconds=5))) as app:
            yield app


def pauses_of(app: App) -> list[float]:
    """Record the pauses between tries, and let no time pass: the last try is the one that would be too late."""
    waited: list[float] = []
    app.store._pause = waited.append
    return waited


def test_a_call_does_not_wait_if_it_is_told_so(away: App) -> None:
    @away.task
    def greet() -> None: ...

    waited = pauses_of(away)
    with pytest.raises(StoreUnavailable, match="tried once"):
        greet.using(patience=0).enqueue()
    with pytest.raises(StoreUnavailable, match="tried once"):
        greet.using(patience=0).enqueue_many([(), ()])
    with pytest.raises(StoreUnavailable, match="tried once"):
        away.client.using(patience=0).jobs()
    with pytest.raises(StoreUnavailable, match="tried once"):
        asyncio.run(greet.using(patience=0).enqueue_async())

    assert waited == []


def test_the_setting_says_how_long_calls_wait(away: App) -> None:
    assert away.store.patience_seconds == 5
    away.store.patience_seconds = 0
    with pytest.raises(StoreUnavailable, match="tried once"):
        away.client.jobs()


@pytest.fixture(params=["file", "memory"])
def on_sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    url = f"sqlite:///{tmp_path}/jobs.db" if request.param == "file" else "sqlite://"
    with closing(App(url)) as app:
        yield app


def test_a_call_inside_the_callers_own_transaction_says_what_to_write(on_sqlite: App) -> None:
    app = on_sqlite

    @app.task
    def greet() -> None: ...

    with app.transaction() as tx:
        with pytest.raises(StoreError, match=r"would wait for itself.*task\.using\(tx\)\.enqueue"):
            greet.enqueue()
        greet.using(tx).enqueue()

    assert len(app.client.jobs()) == 1
    greet.enqueue()


async def test_a_coroutine_inside_its_own_transaction_is_told_as_well(on_sqlite: App) -> None:
    app = on_sqlite

    @app.task
    def greet() -> None: ...

    async with app.transaction() as tx:
        with pytest.raises(StoreError, match="would wait for itself"):
            await greet.enqueue_async()
        with pytest.raises(StoreError, match="would wait for itself"):
            greet.enqueue()
        await greet.using(tx).enqueue_async()
        other = asyncio.create_task(greet.enqueue_async())  # it waits for this transaction, which goes on
        await asyncio.sleep(0)

    async with asyncio.timeout(LIMIT):
        await other
    assert len(await app.client.jobs_async()) == 2
    await app.close_async()


def test_reading_beside_an_own_transaction_on_a_file_is_fine(tmp_path: Path) -> None:
    with closing(App(f"sqlite:///{tmp_path}/jobs.db")) as app, app.transaction():
        assert app.client.jobs() == []


def test_a_lock_of_the_callers_own_connection_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagepost.database.sqlite.LOCK_SECONDS", 0.01)
    with closing(App(f"sqlite:///{tmp_path}/jobs.db")) as app:

        @app.task
        def greet() -> None: ...

        app.migrate()
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
            connection.execute("begin immediate")
            with pytest.raises(StoreUnavailable, match=r"write lock of SQLite file.*task\.using\(connection\)"):
                greet.using(patience=0).enqueue()
            greet.using(connection).enqueue()
            connection.commit()

        assert len(app.client.jobs()) == 1
