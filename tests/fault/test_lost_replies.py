"""A lost COMMIT reply against real databases: the client sees an error although the row exists."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import asyncpg
import psycopg
import pymysql
import pytest

from tests.fault.proxy import FaultProxy
from tests.services import mariadb


@dataclass(frozen=True)
class NoteTable:
    """A table `note (text)`, written through the proxy and read past it."""

    proxy: FaultProxy
    url: str
    texts: Callable[[], list[str]]


@pytest.fixture
def postgres(postgres_database: str) -> Iterator[NoteTable]:
    with (
        psycopg.connect(postgres_database, autocommit=True) as direct,
        FaultProxy.to(postgres_database) as proxy,
    ):
        direct.execute("create table note (text varchar(20))")

        def texts() -> list[str]:
            return [text for (text,) in direct.execute("select text from note order by text")]

        yield NoteTable(proxy, proxy.url_for(postgres_database), texts)


@pytest.fixture
def maria(mariadb_database: str) -> Iterator[NoteTable]:
    with (
        contextlib.closing(mariadb.connect(mariadb_database)) as direct,
        direct.cursor() as cursor,
        FaultProxy.to(mariadb_database) as proxy,
    ):
        cursor.execute("create table note (text varchar(20))")

        def texts() -> list[str]:
            cursor.execute("select text from note order by text")
            return [text for (text,) in cursor.fetchall()]

        yield NoteTable(proxy, proxy.url_for(mariadb_database), texts)


@pytest.mark.parametrize("binary", [False, True], ids=["simple protocol", "extended protocol"])
def test_postgres_keeps_the_row_whose_commit_reply_was_lost(postgres: NoteTable, *, binary: bool) -> None:
    with contextlib.closing(psycopg.connect(postgres.url, autocommit=True)) as client:
        client.execute("begin")
        trap = postgres.proxy.drop_reply()
        client.execute("insert into note values ('kept on commit')")

        with pytest.raises(psycopg.OperationalError):
            client.execute("commit", binary=binary)

    trap.wait()
    assert (trap.matched, trap.fired) == (1, 1)
    assert postgres.texts() == ["kept on commit"]


def test_postgres_loses_the_row_whose_commit_request_was_lost(postgres: NoteTable) -> None:
    with contextlib.closing(psycopg.connect(postgres.url)) as client:
        client.execute("insert into note values ('lost')")
        trap = postgres.proxy.drop_request()

        with pytest.raises(psycopg.OperationalError):
            client.commit()

    trap.wait()
    assert postgres.texts() == []


def test_a_commit_at_the_end_of_a_pipeline_is_done_before_its_reply_is_lost(postgres: NoteTable) -> None:
    texts = [f"{number:05}" for number in range(300)]

    def write_and_commit() -> None:
        with contextlib.closing(psycopg.connect(postgres.url)) as client, client.pipeline():
            for text in texts:
                client.execute("insert into note values (%s)", [text])
            client.commit()

    trap = postgres.proxy.drop_reply()
    with pytest.raises(psycopg.OperationalError):
        write_and_commit()

    trap.wait()
    assert postgres.texts() == texts


async def test_asyncpg_keeps_the_row_whose_commit_reply_was_lost(postgres: NoteTable) -> None:
    client = await asyncpg.connect(postgres.url)
    await client.execute("begin")
    await client.execute("insert into note values ($1)", "kept")
    trap = postgres.proxy.drop_reply()

    with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
        await client.execute("commit")

    trap.wait()
    client.terminate()
    assert postgres.texts() == ["kept"]


def test_mariadb_keeps_the_row_whose_commit_reply_was_lost(maria: NoteTable) -> None:
    client = mariadb.connect(maria.url)
    trap = maria.proxy.drop_reply(nth=2)
    client.begin()
    client.cursor().execute("insert into note values ('first')")
    client.commit()
    client.begin()
    client.cursor().execute("insert into note values ('second')")

    with pytest.raises(pymysql.OperationalError):
        client.commit()

    trap.wait()
    assert maria.texts() == ["first", "second"]


def test_mariadb_loses_the_row_whose_commit_request_was_lost(maria: NoteTable) -> None:
    client = mariadb.connect(maria.url)
    client.begin()
    client.cursor().execute("insert into note values ('lost')")
    trap = maria.proxy.drop_request()

    with pytest.raises(pymysql.OperationalError):
        client.commit()

    trap.wait()
    assert maria.texts() == []
