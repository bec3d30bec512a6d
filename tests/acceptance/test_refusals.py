"""What a database refuses is reported at once, as our own error, with what to do; waiting is for outages."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from stagepost import App, Worker
from stagepost.client.health import check_health
from stagepost.database.connection import database_at
from stagepost.database.migrate import migrate
from stagepost.database.store import Store
from stagepost.errors import ConfigurationError, SchemaError, StoreReadOnly, StoreRefused
from stagepost.store import jobs
from stagepost.store.schedules import list_schedules
from tests.acceptance.conftest import quick_settings
from tests.acceptance.helpers import LIMIT
from tests.conformance.bench import DatabaseOnBench
from tests.conformance.samples import new_job
from tests.services.mariadb import connect as connect_to_mariadb

UNKNOWN_HOST = "no-such-host.invalid"


def changed(url: str, *, user: str | None = None, host: str | None = None, name: str | None = None) -> str:
    """The same URL with another user, host or database."""
    parts = urlsplit(url)
    login, _, address = parts.netloc.rpartition("@")
    netloc = f"{user or login}@{host or address}"
    return urlunsplit(parts._replace(netloc=netloc, path=parts.path if name is None else f"/{name}"))


def never(_seconds: float) -> None:
    raise AssertionError("it waits for a database that refuses")


def store_at(url: str) -> Store:
    """A store that must not wait."""
    return Store.at(url, pause=never)


WRONG: dict[str, Callable[[str], str]] = {
    "user": lambda url: changed(url, user="nobody_of_this_name:canary"),
    "database": lambda url: changed(url, name="no_such_database"),
    "host": lambda url: changed(url, host=UNKNOWN_HOST),
}


@pytest.mark.parametrize("part", WRONG)
def test_a_wrong_address_is_refused_at_once(database: DatabaseOnBench, part: str) -> None:
    if database.store.dialect.name == "sqlite":
        pytest.skip("its address is a path")
    store = store_at(WRONG[part](database.url))

    with pytest.raises(StoreRefused, match="Check the host, the database, the user and the password") as caught:
        store.run(jobs.enqueue(new_job()))

    assert "canary" not in str(caught.value)
    store.close()


@pytest.mark.parametrize("part", WRONG)
async def test_a_wrong_address_is_refused_at_once_in_async_transactions(database: DatabaseOnBench, part: str) -> None:
    if database.store.dialect.name == "sqlite":
        pytest.skip("its address is a path")
    app = App(WRONG[part](database.url))

    with pytest.raises(StoreRefused, match="Check the host"):
        await app.transaction().__aenter__()

    await app.close_async()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing/file.db", "Check that its folder exists and is writable"),
        (".", "it is a folder"),
        ("text.db", "file is not a database. Check that the file is an SQLite database"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_once(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "text.db").write_text("This is a text, and it is not short. " * 9)
    store = store_at(f"sqlite:///{tmp_path}/{path}")

    with pytest.raises(StoreRefused, match=message):
        store.run(jobs.enqueue(new_job()))


READ_ONLY = {
    "postgres": "set default_transaction_read_only = on",
    "mysql": "set session transaction read only",
    "sqlite": "pragma query_only = on",
}


def test_a_database_that_is_read_only_refuses_at_once(database: DatabaseOnBench) -> None:
    store = Store(database_at(database.url), pool_size=1, pause=never)
    with store.pool.connection() as loan:
        loan.connection.execute(READ_ONLY[store.dialect.name], {})
        loan.is_sound = True

    with pytest.raises(StoreReadOnly, match=r"enqueue.*(?i:read-?only)"):
        store.run(jobs.enqueue(new_job()))

    store.run(jobs.enqueue(new_job()))  # on another connection, because the first may lead to an old primary
    store.close()


@pytest.fixture(params=["postgres", "mariadb"])
def without_rights(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The URL of a user without any right on the tables of a database, and the user's name."""
    url = request.getfixturevalue(f"{request.param}_database")
    migrate(owner := Store.at(url))
    owner.close()
    user = f"poor_{uuid.uuid4().hex[:8]}"
    if request.param == "postgres":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"create role {user} login")
            yield changed(url, user=user), user
            connection.execute(f"drop role {user}")
    else:
        with connect_to_mariadb(url) as mariadb, mariadb.cursor() as cursor:
            cursor.execute(f"create user {user} identified by 'canary'")
            cursor.execute(f"grant create temporary tables on {urlsplit(url).path[1:]}.* to {user}")
            yield changed(url, user=f"{user}:canary"), user
            cursor.execute(f"drop user {user}")


def test_a_missing_right_names_the_operation_the_table_and_the_user(without_rights: tuple[str, str]) -> None:
    url, user = without_rights
    store = store_at(url)

    with pytest.raises(StoreRefused, match=rf"enqueue.*denied.*stagepost_job.*Grant user '{user}'") as caught:
        store.run(jobs.enqueue(new_job()))

    assert type(caught.value.__cause__).__module__.partition(".")[0] in {"psycopg", "pymysql"}
    store.close()


def test_a_missing_right_is_reported_by_every_way_in(without_rights: tuple[str, str]) -> None:
    url, _ = without_rights
    app = App(url)
    app.store._pause = never

    @app.task
    def greet() -> None: ...

    ways: dict[str, Callable[[], Any]] = {
        "enqueue": greet.enqueue,
        "jobs": app.client.jobs,
        "retry": lambda: app.client.retry(str(uuid.uuid4())),
        "migrate": app.migrate,
        "batch": lambda: app.batch("b").state(),
        "many": lambda: greet.enqueue_many([()] * 3),
    }
    for name, way in ways.items():
        with pytest.raises(StoreRefused, match="denied"):
            way()
        assert name
    with pytest.raises(StoreRefused, match="denied"), app.transaction() as tx:
        greet.using(tx).enqueue()
    assert ("schema", "failed") in [(check.name, check.status) for check in check_health(app.store)]
    app.close()


def test_missing_tables_are_reported_at_once_with_the_database(postgres_database: str) -> None:
    store = store_at(postgres_database)

    with pytest.raises(SchemaError, match=r"stagepost_job.*stagepost migrate.*PostgreSQL at postgresql://"):
        store.run(jobs.enqueue(new_job()))
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://shop:pa%ss-canary@127.0.0.1/app",
        "postgresql://shop:canary@127.0.0.1:port/app",
        "postgresql://shop:canary@127.0.0.1/app?no_such_option=1",
        "postgresql://shop:canary/canary@127.0.0.1/app",
        "postgresql://shop:12@canary@127.0.0.1/app",
        "postgresql://shop:canary@127.0.0.1/app?sslmode=perhaps",
        "mysql://shop:canary@127.0.0.1:port/app",
        "mysql://shop:canary@127.0.0.1/app?no_such_option=1",
        "mysql://shop:canary@127.0.0.1/app?connect_timeout=0",
        "oracle://shop:canary@127.0.0.1/app",
        "host=127.0.0.1 password=canary",
        "shop:canary@127.0.0.1/app",
        "",
    ],
)
def test_a_malformed_url_is_refused_at_once_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught, closing(App(url)) as app:
        app.client.jobs()

    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_worker_outlives_a_failover_during_which_the_server_is_read_only(
    postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(settings=quick_settings(postgres_database), auto_migrate=True)
    ran: list[int] = []

    @app.task
    async def note(number: int) -> None:
        ran.append(number)

    app.schedule("yearly", "0 0 1 1 *", note.job(0))
    app.migrate()
    note.enqueue(1)
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        make_read_only(owner, "on")
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        await until(lambda: "this worker starts when the database can be written again" in caplog.text)
        assert not working.done()
        make_read_only(owner, "off")
        await until(lambda: ran == [1])

        await note.enqueue_async(2)
        make_read_only(owner, "on")
        await until(lambda: any(loop.failures_in_a_row >= 2 for loop in worker.parts.loops.values()))
        make_read_only(owner, "off")
        await until(lambda: ran == [1, 2])
        assert len(app.store.run(list_schedules())) == 1
        worker.stop()
        await working

    assert {job.state for job in app.client.jobs()} == {"completed"}
    app.close()


def make_read_only(owner: psycopg.Connection[Any], switch: str) -> None:
    """Let all sessions of this database start again, with or without the right to write."""
    name = owner.info.dbname
    owner.execute(f"alter database {name} set default_transaction_read_only = {switch}")
    owner.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()", [name]
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - it is not told
            await asyncio.sleep(0.02)
