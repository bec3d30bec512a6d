"""Enqueuing from SQL: the documented lines, the rights they need, and what other sessions notice."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from stagepost import App, JobState
from stagepost.database.dialect import MYSQL, POSTGRES, SQLITE, Dialect
from stagepost.database.migrate import check_schema, migrations_of, script_of
from stagepost.store.counting import count_by_queue
from tests.acceptance.pages import blocks
from tests.acceptance.sql_clients import SqlClient, SqlFailed, sql_client
from tests.conformance.bench import DatabaseOnBench
from tests.services.mariadb import connect

SECONDS = 60.0


@pytest.fixture
def sql(app: App, database: DatabaseOnBench) -> SqlClient:
    assert app.client.jobs() == []
    return sql_client(database.url)


def documented(words: str) -> str:
    """The block of the page that these words mark."""
    [block] = [block for block in blocks("sql") if words in block.words]
    return block.text


def test_the_documented_lines_enqueue(app: App, sql: SqlClient) -> None:
    sql.run("drop table if exists orders;\ncreate table orders (id integer);\n")

    sql.run(documented(f"enqueue on {urlsplit(sql.url).scheme}"))

    found = {job.task: job for job in app.client.jobs()}
    assert {name: job.arguments for name, job in found.items()} == {
        "shop.charge": {"order_id": 42},
        "shop.remind": {"order_id": 42},
    }
    assert (found["shop.charge"].queue, found["shop.charge"].state) == ("default", "queued")
    assert (found["shop.remind"].queue, found["shop.remind"].state) == ("mail", "scheduled")
    assert found["shop.remind"].unique_key == "remind:42"
    assert sql.run("select count(*) from orders;") == ["1"]
    sql.run("drop table orders;\n")


@pytest.fixture
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Dialect], str]:
    def make(dialect: Dialect) -> str:
        if dialect is SQLITE:
            return f"sqlite:///{tmp_path}/stagepost.db"
        url: str = request.getfixturevalue("postgres_database" if dialect is POSTGRES else "mariadb_database")
        return url

    return make


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES, MYSQL], ids=lambda dialect: dialect.name)
def test_the_databases_own_program_can_run_the_migrations(
    dialect: Dialect, empty_database: Callable[[Dialect], str]
) -> None:
    url = empty_database(dialect)
    sql = sql_client(url)

    sql.run(script_of(migrations_of(dialect), dialect))
    sql.enqueue("greet", {"name": "Ada"}, unique_key="k")

    app = App(url, auto_migrate=False)
    check_schema(app.store)
    assert [job.arguments for job in app.client.jobs()] == [{"name": "Ada"}]
    app.close()


@pytest.fixture
def postgres_role(one_database: DatabaseOnBench) -> Iterator[str]:
    """A role with what the page grants, and nothing else."""
    one_database.empty()
    role = f"shop_php_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(one_database.url, autocommit=True) as owner:
        owner.execute(f"create role {role}")
        owner.execute(documented("enqueue grants on postgresql").replace("shop_php", role))
        yield role
        owner.execute(f"drop owned by {role}")
        owner.execute(f"drop role {role}")


def test_a_postgres_role_can_enqueue_and_nothing_else(one_database: DatabaseOnBench, postgres_role: str) -> None:
    sql = sql_client(one_database.url)

    job_id = sql.run(f"set role {postgres_role};\n{sql.call('greet', unique_key='k')}")[-1]
    again = sql.run(f"set role {postgres_role};\n{sql.call('greet', unique_key='k')}")[-1]

    assert job_id == again
    for statement in ("select * from stagepost_job", "delete from stagepost_move", "select * from stagepost_batch"):
        with pytest.raises(SqlFailed, match="permission denied"):
            sql.run(f"set role {postgres_role};\n{statement};\n")
    assert one_database.store.run(count_by_queue())["default"][JobState.QUEUED] == 1


def test_a_postgres_role_without_the_grant_is_refused(one_database: DatabaseOnBench, postgres_role: str) -> None:
    sql = sql_client(one_database.url)
    sql.run(f"revoke execute on function stagepost_enqueue_v1 from {postgres_role};\n")

    with pytest.raises(SqlFailed, match="permission denied"):
        sql.run(f"set role {postgres_role};\n{sql.call('greet')}")


def test_a_callers_search_path_changes_nothing(one_database: DatabaseOnBench, postgres_role: str) -> None:
    sql = sql_client(one_database.url)
    traps = f"""
        create schema trap authorization {postgres_role};
        set role {postgres_role};
        create table trap.stagepost_job (like public.stagepost_migration);
        create temporary table stagepost_move (scope text);
        create function trap.lpad(text, integer, text) returns text language sql as $$ select 'trapped' $$;
        set search_path = trap, public, pg_catalog;
    """

    try:
        sql.run("grant select on stagepost_migration to public;\ngrant temporary on database "
                f"{urlsplit(one_database.url).path.strip('/')} to public;\n")  # fmt: skip
        sql.run(traps + sql.call("greet").replace("stagepost_enqueue_v1", "public.stagepost_enqueue_v1"))
    finally:
        sql.run("drop schema trap cascade;\nrevoke select on stagepost_migration from public;\n")

    assert one_database.store.run(count_by_queue())["default"][JobState.QUEUED] == 1


def test_listening_workers_are_notified_at_the_commit(one_database: DatabaseOnBench) -> None:
    one_database.empty()
    sql = sql_client(one_database.url)

    with psycopg.connect(one_database.url, autocommit=True) as listening:
        listening.execute("listen stagepost")
        sql.run(f"begin;\n{sql.call('greet', queue='lost')}rollback;\n")
        sql.run(sql.call("greet", queue="later", delay=60))
        sql.run(sql.call("greet", queue="mail"))
        told = [notice.payload for notice in listening.notifies(timeout=SECONDS, stop_after=1)]

    assert told == ["mail"]


def test_a_mariadb_account_can_enqueue_and_nothing_else(mariadb_database: str) -> None:
    App(mariadb_database, auto_migrate=True).store.close()
    parts = urlsplit(mariadb_database)
    name = parts.path.strip("/")
    user = f"shop_php_{uuid.uuid4().hex[:8]}"
    grants = documented("enqueue grants on mysql").replace("shop.", f"{name}.").replace("shop_php", user)
    with closing(connect(mariadb_database)) as owner, owner.cursor() as cursor:
        cursor.execute(f"create user '{user}'@'%' identified by 'secret'")
        cursor.execute(grants.rstrip(";\n"))
        try:
            place = f"{parts.hostname}:{parts.port or 3306}/{name}"
            sql = sql_client(f"mysql://{user}:secret@{place}")
            assert sql.enqueue("greet", unique_key="k") == sql.enqueue("greet", unique_key="k")
            for statement in ("select * from stagepost_job", "delete from stagepost_move"):
                with pytest.raises(SqlFailed, match="denied"):
                    sql.run(f"{statement};\n")
        finally:
            cursor.execute(f"drop user '{user}'@'%'")
