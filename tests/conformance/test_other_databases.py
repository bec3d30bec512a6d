"""A caller's connection must lead to the app's database; one that certainly leads elsewhere is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stagepost import App
from stagepost.database.connection import Connection, Database, database_at
from stagepost.database.dialect import Dialect, ParameterStyle
from stagepost.database.failures import Address
from stagepost.database.migrate import migrate
from stagepost.database.store import Store
from stagepost.database.transaction import run_in
from stagepost.errors import ConfigurationError, SchemaError
from stagepost.store import jobs
from stagepost.testing.clock import ManualClock
from tests.conformance.bench import Bench
from tests.conformance.caller_kinds import every_kind, sqlite_path
from tests.conformance.callers import Kind, calling
from tests.conformance.samples import new_job


@pytest.fixture
def store(callers_store: Bench) -> Bench:
    return callers_store


@pytest.fixture(scope="session")
def other_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Gives another database of each kind, with tables of Stagepost's as well: they must not be used."""
    made: dict[str, str] = {}

    def make(name: str) -> str:
        if name not in made:
            if name == "sqlite":
                made[name] = f"sqlite:///{tmp_path_factory.mktemp('other')}/other.db"
            else:
                made[name] = request.getfixturevalue(f"{name}_server").fresh_database()
            with closing(Store.at(made[name])) as store:
                migrate(store)
        return made[name]

    return make


@every_kind
def test_a_connection_to_another_database_is_refused_with_both_names(
    kind: Kind, store: Bench, other_url: Callable[[str], str]
) -> None:
    url = other_url(kind.database)
    job = new_job()
    with calling(kind, url, store.clock) as caller:
        caller.database = database_at(store.url)
        caller.begin()
        with pytest.raises(ConfigurationError) as caught:
            caller.run(jobs.enqueue(job))
        caller.rollback()

    assert url.rpartition("/")[2] in str(caught.value)
    assert store.url.rpartition("/")[2] in str(caught.value)
    with closing(Store.at(url)) as other:
        assert other.run(jobs.find(job.id)) is None


@dataclass
class Watched:
    """A database that counts how often it is connected to."""

    database: Database
    connects: int = 0
    dialect: Dialect = field(init=False)
    style: ParameterStyle = field(init=False)
    shares_one_connection: bool = False
    is_memory: bool = False

    def __post_init__(self) -> None:
        self.dialect, self.style = self.database.dialect, self.database.style

    @property
    def address(self) -> Address:
        return self.database.address

    def connect(self) -> Connection:
        self.connects += 1
        return self.database.connect()


@every_kind
def test_a_connection_to_the_same_database_by_another_name_is_asked_once(
    kind: Kind, store: Bench, tmp_path: Path, other_url: Callable[[str], str]
) -> None:
    """Through a pooler, a socket or a link the same database may have any address, so only the database can tell."""
    if kind.database == "sqlite":
        (tmp_path / "link.db").symlink_to(sqlite_path(store.url))
        same = Watched(database_at(f"sqlite:///{tmp_path}/link.db"))
    else:
        same = Watched(database_at(store.url))
    first, second = new_job(), new_job()
    with calling(kind, store.url, store.clock) as caller:
        caller.database = same
        for job in (first, second):
            caller.begin()
            caller.run(jobs.enqueue(job))
            caller.commit()
        assert same.connects <= 1
        caller.database = database_at(other_url(kind.database))
        caller.begin()
        with pytest.raises(ConfigurationError):
            caller.run(jobs.enqueue(new_job()))
        caller.rollback()

    assert store.run(jobs.get(second.id)).id == second.id


def test_a_connection_whose_address_is_literally_the_apps_is_not_asked(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = database_at(postgres_database)
    with closing(Store.at(postgres_database)) as store:
        migrate(store)
    statements: list[str] = []
    with psycopg.connect(postgres_database) as tx:
        execute = psycopg.Cursor.execute

        def counted(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            statements.append(str(query))
            return execute(cursor, query, *arguments, **options)

        monkeypatch.setattr(psycopg.Cursor, "execute", counted)
        run_in(tx, jobs.enqueue(new_job()), clock=ManualClock(), database=database)

    assert not [statement for statement in statements if "current_database" in statement]


@pytest.mark.parametrize("with_host", [True, False], ids=["same address", "another address"])
def test_missing_tables_name_both_databases(postgres_database: str, with_host: bool) -> None:
    """The advice to migrate is given only for the case that they are the same."""
    database = database_at(postgres_database if with_host else postgres_database.replace("127.0.0.1", "localhost"))
    advice = r"The connection leads to database '\w+' at .*If these are the same"
    with psycopg.connect(postgres_database) as tx, pytest.raises(SchemaError, match=advice) as caught:
        run_in(tx, jobs.enqueue(new_job()), clock=ManualClock(), database=database)

    assert "the app's database is PostgreSQL at postgresql://" in str(caught.value)


def test_a_transaction_of_another_app_is_refused(tmp_path: Path) -> None:
    with closing(App(f"sqlite:///{tmp_path}/a.db")) as one, closing(App("sqlite://")) as other:

        @one.task
        def greet() -> None: ...

        assert other.client.jobs() == []
        with (
            pytest.raises(ConfigurationError, match=r"another SQLite database in memory.*a\.db"),
            other.transaction() as tx,
        ):
            greet.using(tx).enqueue()
        with one.transaction() as tx:
            greet.using(tx).enqueue()

        assert len(one.client.jobs()) == 1


def test_a_connection_of_another_kind_is_refused(tmp_path: Path, postgres_database: str) -> None:
    with closing(App(f"sqlite:///{tmp_path}/a.db")) as app, psycopg.connect(postgres_database) as tx:

        @app.task
        def greet() -> None: ...

        with pytest.raises(ConfigurationError, match=r"leads to .*PostgreSQL.*a\.db"):
            greet.using(tx).enqueue()
