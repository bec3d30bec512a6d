"""Creating the tables: once, by one of many processes, and never over a changed migration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagepost.clock import SystemClock
from stagepost.database import Store, migrate
from stagepost.database.dialect import MYSQL, POSTGRES, SQLITE, Dialect
from stagepost.database.migrate import applied, check_schema, migrations_of, pending
from stagepost.database.transaction import run_in
from stagepost.errors import SchemaError, StoreUnavailable
from stagepost.model.identity import new_id
from stagepost.model.lifecycle import FINAL, LIVE
from stagepost.store import jobs
from tests.conformance.bench import at_once
from tests.conformance.samples import new_job

every_dialect = pytest.mark.parametrize("dialect", [SQLITE, POSTGRES, MYSQL], ids=lambda dialect: dialect.name)


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/stagepost.db"
    address: str = request.getfixturevalue(f"{request.param}_database")
    return address


@pytest.fixture
def empty(url: str) -> Iterator[Store]:
    store = Store.at(url)
    yield store
    store.close()


def test_an_empty_database_lacks_every_migration(empty: Store) -> None:
    assert applied(empty) == []
    assert pending(empty) == migrations_of(empty.dialect)
    with pytest.raises(SchemaError, match=r"lacks migration 0001_initial.*Run `stagepost migrate`"):
        check_schema(empty)


def test_a_migrated_database_works(empty: Store) -> None:
    done = migrate.migrate(empty)

    assert done == migrations_of(empty.dialect)
    assert [version for version, _, _ in applied(empty)] == [migration.version for migration in done]
    assert pending(empty) == []
    check_schema(empty)
    assert empty.run(jobs.enqueue(new_job())).is_new


def test_migrating_again_changes_nothing(empty: Store) -> None:
    migrate.migrate(empty)
    job = new_job()
    empty.run(jobs.enqueue(job))

    assert migrate.migrate(empty) == []

    assert empty.run(jobs.find(job.id)) is not None


def test_of_many_migrators_at_once_one_makes_the_tables(url: str) -> None:
    stores = [Store.at(url) for _ in range(4)]

    done = at_once([lambda store=store: migrate.migrate(store) for store in stores])  # type: ignore[misc]

    assert sorted(map(len, done)) == [0, 0, 0, len(migrations_of(stores[0].dialect))]
    for store in stores:
        check_schema(store)
        store.close()


def test_a_migration_applied_with_other_contents_is_refused(empty: Store) -> None:
    migrate.migrate(empty)
    with empty.transaction() as connection:
        connection.execute("update stagepost_migration set checksum = 'other'", {})

    for refused in (migrate.migrate, pending, check_schema):
        with pytest.raises(SchemaError, match="0001_initial was applied with a different content"):
            refused(empty)


def test_a_comment_may_change_after_a_migration_was_applied_and_a_statement_may_not() -> None:
    first, commented, changed = (
        migrate.Migration(1, "initial", sql)
        for sql in (
            "-- A\ncreate table a (b int);\n",
            "-- B\ncreate table a (b int);\n",
            "-- A\ncreate table a (c int);\n",
        )
    )

    assert first.checksum == commented.checksum != changed.checksum


def test_tables_of_a_newer_release_are_accepted(empty: Store) -> None:
    migrate.migrate(empty)
    with empty.transaction() as connection:
        connection.execute("insert into stagepost_migration (version, name, checksum) values (9999, 'later', 'x')", {})

    check_schema(empty)
    assert migrate.migrate(empty) == []


def test_a_failed_migration_is_not_recorded_as_applied(empty: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = migrate.Migration(9998, "broken", "create table stagepost_broken (id integer);\nnonsense;\n")
    known = migrations_of(empty.dialect)
    monkeypatch.setattr(migrate, "migrations_of", lambda _dialect: [*known, broken])

    with pytest.raises(Exception, match="nonsense"):
        migrate.migrate(empty)

    assert 9998 not in [version for version, _, _ in applied(empty)]


def test_a_migration_that_died_halfway_can_be_run_again(empty: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = migrations_of(empty.dialect)[0].statements
    halfway = len(statements) // 2
    run = empty.database.connect

    def dying() -> object:
        connection = run()
        execute = connection.execute

        def until_halfway(sql: str, parameters: object) -> object:
            if sql == statements[halfway]:
                raise KeyboardInterrupt
            return execute(sql, parameters)

        connection.execute = until_halfway  # type: ignore[method-assign, assignment]
        return connection

    monkeypatch.setattr(empty.database, "connect", dying)
    with pytest.raises(KeyboardInterrupt):
        migrate.migrate(empty)
    monkeypatch.undo()
    empty.close()

    again = Store(empty.database)
    migrate.migrate(again)

    assert again.run(jobs.enqueue(new_job())).is_new
    again.close()


def test_an_operation_without_tables_says_what_to_do(empty: Store) -> None:
    with pytest.raises(SchemaError, match=r"^find: .*stagepost_job.*Run `stagepost migrate`"):
        empty.run(jobs.find(new_id()))


def test_an_operation_in_a_callers_transaction_without_tables_says_what_to_do(empty: Store) -> None:
    with (
        pytest.raises(SchemaError, match=r"^find: .*stagepost_job.*Run `stagepost migrate`"),
        empty.transaction() as connection,
    ):
        run_in(connection.raw, jobs.find(new_id()), clock=SystemClock())


def test_a_migrator_does_not_wait_for_ever(mariadb_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(migrate.LOCKS, "mysql", migrate.LOCKS["mysql"].replace("60", "0"))
    first, second = Store.at(mariadb_database), Store.at(mariadb_database)

    with first.transaction() as connection:
        connection.execute(migrate.LOCKS["mysql"], {})
        with pytest.raises(StoreUnavailable, match="another migration"):
            migrate.migrate(second)
        connection.execute(migrate.UNLOCKS["mysql"], {})

    assert migrate.migrate(second) == migrations_of(MYSQL)
    first.close()
    second.close()


@every_dialect
def test_the_tables_know_exactly_the_states_of_the_lifecycle(dialect: Dialect) -> None:
    sql = "\n".join(migration.sql for migration in migrations_of(dialect))

    live, final = (
        re.search(rf"create (?:{owner}) .*?check \((?:state|value) in \(([^)]*)\)\)", sql, flags=re.DOTALL)
        for owner in (
            "table stagepost_job|domain stagepost_live_state",
            "table stagepost_job_history|domain stagepost_ended_state",
        )
    )

    assert live is not None
    assert final is not None
    assert re.findall(r"'(\w+)'", live[1]) == sorted(LIVE)
    assert re.findall(r"'(\w+)'", final[1]) == sorted(FINAL)


def test_a_state_of_the_other_table_is_refused(empty: Store) -> None:
    migrate.migrate(empty)
    job = new_job()
    empty.run(jobs.enqueue(job))

    with pytest.raises(Exception, match=r"(?i)constraint"), empty.transaction() as connection:
        connection.execute("update stagepost_job set state = 'completed'", {})


@every_dialect
def test_every_dialect_has_the_same_tables_and_columns(dialect: Dialect) -> None:
    tables = tables_of(dialect)
    if dialect.name == "mysql":  # three that the database fills, for the sake of claims
        tables["stagepost_job"].remove("running_key")
        tables["stagepost_job"].remove("blocked_state")
        tables["stagepost_job"].remove("room")
        del tables["stagepost_live_key"]  # a unique index elsewhere

    assert tables == tables_of(SQLITE)


def tables_of(dialect: Dialect) -> dict[str, list[str]]:
    sql = "\n".join(migration.sql for migration in migrations_of(dialect))
    tables = re.findall(r"^create table (\w+) \((.*?)^\)", sql, flags=re.DOTALL | re.MULTILINE)
    not_columns = {"primary", "unique", "check", "constraint", "foreign"}
    return {
        name: [column for column in re.findall(r"^    (\w+)", body, flags=re.MULTILINE) if column not in not_columns]
        for name, body in tables
    }
