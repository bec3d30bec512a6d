"""The kinds of connection themselves: plain drivers, SQLAlchemy on each of them, Django."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conformance.bench import mysql_options
from tests.conformance.callers import INSTALLED, Kind


def sqlite_path(url: str) -> str:
    return urlsplit(url).path[1:]


def as_dict(cursor: Any, values: Any) -> dict[str, Any]:
    """A row type that iterates over names instead of values."""
    return dict(zip([column[0] for column in cursor.description], values, strict=True))


def open_sqlite3(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
    import sqlite3

    tx = sqlite3.connect(sqlite_path(url), isolation_level=None if autocommit else "DEFERRED")
    if odd_rows:
        tx.row_factory, tx.text_factory = as_dict, bytes
    return tx


async def open_aiosqlite(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
    import aiosqlite

    tx = await aiosqlite.connect(sqlite_path(url), isolation_level=None if autocommit else "DEFERRED")
    if odd_rows:
        tx.row_factory, tx.text_factory = as_dict, bytes  # type: ignore[assignment]
    return tx


def open_psycopg(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
    import psycopg
    from psycopg.rows import dict_row, tuple_row

    tx = psycopg.connect(url, autocommit=autocommit, row_factory=dict_row if odd_rows else tuple_row)
    tx.cursor_factory = psycopg.RawCursor if odd_rows else psycopg.Cursor
    return tx


async def open_psycopg_async(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
    import psycopg
    from psycopg.rows import dict_row, tuple_row

    connect = psycopg.AsyncConnection.connect
    tx = await connect(url, autocommit=autocommit, row_factory=dict_row if odd_rows else tuple_row)
    tx.cursor_factory = psycopg.AsyncRawCursor if odd_rows else psycopg.AsyncCursor
    return tx


def open_psycopg2(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
    psycopg2, extras = import_module("psycopg2"), import_module("psycopg2.extras")
    tx = psycopg2.connect(url, cursor_factory=extras.RealDictCursor if odd_rows else None)
    tx.autocommit = autocommit
    return tx


async def open_asyncpg(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
    """asyncpg has no other rows, but applications often let it decode JSON."""
    import asyncpg

    tx = await asyncpg.connect(url)
    if odd_rows:
        await decode_json(tx)
    return tx


async def decode_json(tx: Any) -> None:
    import json

    await tx.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")


async def open_asyncpg_pool(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
    import asyncpg

    pool = await asyncpg.create_pool(url, min_size=1, max_size=1, init=decode_json if odd_rows else None)
    return await pool.acquire()


async def close_asyncpg_pool(tx: Any) -> None:
    pool = tx._holder._pool
    await pool.release(tx)
    await pool.close()


ASYNCPG: dict[str, Any] = {
    "execute": lambda tx, sql: tx.execute(sql),
    "begin": lambda tx: tx.execute("begin"),
    "commit": lambda tx: tx.execute("commit"),
    "rollback": lambda tx: tx.execute("rollback"),
}
"""asyncpg commits every statement by itself unless told."""


WITHOUT_TLS: dict[str, Any] = {"ssl_disabled": True}
"""PyMySQL reads all certificates of the machine for every connection, which takes longer than most tests."""


def open_pymysql(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
    import pymysql
    from pymysql.cursors import Cursor, DictCursor

    options = {**mysql_options(url), "database": urlsplit(url).path[1:], "autocommit": autocommit, **WITHOUT_TLS}
    return pymysql.connect(**options, cursorclass=DictCursor if odd_rows else Cursor)


def open_mysqldb(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
    driver, cursors = import_module("MySQLdb"), import_module("MySQLdb.cursors")
    options = mysql_options(url) | {"database": urlsplit(url).path[1:], "autocommit": autocommit}
    return driver.connect(**options, cursorclass=cursors.DictCursor if odd_rows else cursors.Cursor)


async def open_asyncmy(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
    import asyncmy
    from asyncmy.cursors import Cursor, DictCursor

    options = mysql_options(url) | {"db": urlsplit(url).path[1:], "autocommit": autocommit}
    return await asyncmy.connect(**options, cursor_cls=DictCursor if odd_rows else Cursor)


def through_cursor(tx: Any, sql: str) -> None:
    with contextlib.closing(tx.cursor()) as cursor:
        cursor.execute(sql)
        if cursor.description:
            cursor.fetchall()


async def through_async_cursor(tx: Any, sql: str) -> None:
    async with tx.cursor() as cursor:
        await cursor.execute(sql)
        if cursor.description:
            await cursor.fetchall()


def sqlalchemy_url(url: str, driver: str) -> str:
    return driver + url[url.index(":") :]


def sqlalchemy_opener(driver: str, wrap: Callable[[Any], Any]) -> Callable[..., Any]:
    """Create an engine, and let `wrap` build the object that is passed as `tx`."""

    def open_(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
        import sqlalchemy

        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        if driver == "mysql+pymysql":
            options["connect_args"] = WITHOUT_TLS
        return wrap(sqlalchemy.create_engine(sqlalchemy_url(url, driver), **options))

    return open_


def async_sqlalchemy_opener(driver: str, wrap: Callable[[Any], Any]) -> Callable[..., Any]:
    async def open_(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
        from sqlalchemy.ext.asyncio import create_async_engine

        options = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        tx = wrap(create_async_engine(sqlalchemy_url(url, driver), **options))
        return await tx if inspect.isawaitable(tx) else tx

    return open_


def text(sql: str) -> Any:
    import sqlalchemy

    return sqlalchemy.text(sql)


def sqlalchemy_kinds(database: str, driver: str, needs: str) -> list[Kind]:
    import sqlalchemy.orm

    def session(engine: Any) -> Any:
        return sqlalchemy.orm.Session(engine)

    def scoped(engine: Any) -> Any:
        return sqlalchemy.orm.scoped_session(sqlalchemy.orm.sessionmaker(engine))

    def close(tx: Any) -> None:
        bind = tx.get_bind() if hasattr(tx, "get_bind") else tx.engine
        tx.close()
        bind.dispose()

    wraps = {"connection": lambda engine: engine.connect(), "session": session, "scoped_session": scoped}
    return [
        Kind(
            name=f"sqlalchemy-{driver.rpartition('+')[2]}-{name}",
            database=database,
            needs=needs,
            open=sqlalchemy_opener(driver, wrap),
            execute=lambda tx, sql: tx.execute(text(sql)),
            close=close,
            takes_begin=False,
            has_odd_rows=False,
        )
        for name, wrap in wraps.items()
    ]


def async_sqlalchemy_kinds(database: str, driver: str, needs: str) -> list[Kind]:
    def session(engine: Any) -> Any:
        from sqlalchemy.ext.asyncio import AsyncSession

        return AsyncSession(engine)

    async def close(tx: Any) -> None:
        bind = tx.bind if hasattr(tx, "bind") else tx.engine
        await tx.close()
        await bind.dispose()

    wraps = {"connection": lambda engine: engine.connect(), "session": session}
    return [
        Kind(
            name=f"sqlalchemy-{driver.rpartition('+')[2]}-async_{name}",
            database=database,
            needs=needs,
            open=async_sqlalchemy_opener(driver, wrap),
            execute=lambda tx, sql: tx.execute(text(sql)),
            close=close,
            takes_begin=False,
            has_odd_rows=False,
        )
        for name, wrap in wraps.items()
    ]


DJANGO_ENGINES = {"sqlite": "sqlite3", "postgres": "postgresql", "mariadb": "mysql"}


def django_kind(database: str, needs: str) -> Kind:
    """Django's default: autocommit, with `atomic` around statements that belong together."""
    blocks: dict[str, Any] = {}

    def open_(url: str, *, autocommit: bool = False, odd_rows: bool = False) -> Any:
        import django
        from django.conf import settings
        from django.db import connections

        if database == "mariadb" and "MySQLdb" not in INSTALLED:  # the driver Django wants
            import_module("pymysql").install_as_MySQLdb()
        if not settings.configured:
            settings.configure(USE_TZ=True)
            django.setup()
        parts = urlsplit(url)
        facts = {
            "ENGINE": f"django.db.backends.{DJANGO_ENGINES[database]}",
            "NAME": parts.path[1:],
            "HOST": parts.hostname or "",
            "PORT": parts.port or "",
            "USER": parts.username or "",
            "OPTIONS": WITHOUT_TLS if database == "mariadb" and "MySQLdb" not in INSTALLED else {},
        }
        completed = connections.configure_settings({"default": {}, database: facts})
        connections.settings[database] = completed[database]
        with contextlib.suppress(AttributeError):
            del connections[database]  # it may lead to another database
        return connections[database]

    def begin(tx: Any) -> None:
        from django.db import transaction

        blocks[database] = transaction.atomic(using=database)
        blocks[database].__enter__()

    def commit(tx: Any) -> None:
        blocks[database].__exit__(None, None, None)

    def rollback(tx: Any) -> None:
        tx.set_rollback(True)
        blocks[database].__exit__(None, None, None)

    return Kind(
        name="django",
        database=database,
        needs=needs,
        open=open_,
        execute=through_cursor,
        begin=begin,
        commit=commit,
        rollback=rollback,
        takes_begin=False,
        has_odd_rows=False,
    )


KINDS = [
    Kind("sqlite3", "sqlite", "sqlite3", open_sqlite3, lambda tx, sql: tx.execute(sql).fetchall()),
    Kind("aiosqlite", "sqlite", "aiosqlite", open_aiosqlite, lambda tx, sql: tx.execute_fetchall(sql)),
    *sqlalchemy_kinds("sqlite", "sqlite+pysqlite", "sqlite3"),
    *async_sqlalchemy_kinds("sqlite", "sqlite+aiosqlite", "aiosqlite"),
    django_kind("sqlite", "sqlite3"),
    Kind("psycopg", "postgres", "psycopg", open_psycopg, through_cursor),
    Kind("psycopg_async", "postgres", "psycopg", open_psycopg_async, through_async_cursor),
    Kind("psycopg2", "postgres", "psycopg2", open_psycopg2, through_cursor),
    Kind("asyncpg", "postgres", "asyncpg", open_asyncpg, **ASYNCPG),
    Kind("asyncpg_pool", "postgres", "asyncpg", open_asyncpg_pool, close=close_asyncpg_pool, **ASYNCPG),
    *sqlalchemy_kinds("postgres", "postgresql+psycopg", "psycopg"),
    *sqlalchemy_kinds("postgres", "postgresql+psycopg2", "psycopg2"),
    *async_sqlalchemy_kinds("postgres", "postgresql+psycopg", "psycopg"),
    *async_sqlalchemy_kinds("postgres", "postgresql+asyncpg", "asyncpg"),
    django_kind("postgres", "psycopg"),
    Kind("pymysql", "mariadb", "pymysql", open_pymysql, through_cursor),
    Kind("mysqldb", "mariadb", "MySQLdb", open_mysqldb, through_cursor),
    Kind("asyncmy", "mariadb", "asyncmy", open_asyncmy, through_async_cursor),
    *sqlalchemy_kinds("mariadb", "mysql+pymysql", "pymysql"),
    *sqlalchemy_kinds("mariadb", "mysql+mysqldb", "MySQLdb"),
    *async_sqlalchemy_kinds("mariadb", "mysql+asyncmy", "asyncmy"),
    django_kind("mariadb", "pymysql"),
]

QUICK = {
    "sqlite-sqlite3",
    "sqlite-aiosqlite",
    "sqlite-sqlalchemy-pysqlite-session",
    "sqlite-django",
    "postgres-psycopg",
    "postgres-psycopg_async",
    "postgres-asyncpg",
    "postgres-sqlalchemy-asyncpg-async_session",
    "postgres-django",
    "mariadb-pymysql",
    "mariadb-asyncmy",
    "mariadb-sqlalchemy-pymysql-connection",
}
"""One of each family, which `./dev test` uses; the others differ only in their wrappers."""


def each_kind(chosen: Callable[[Kind], bool] = lambda _kind: True) -> pytest.MarkDecorator:
    """Run a test with each kind of connection."""
    parameters = [
        pytest.param(kind, id=str(kind), marks=() if str(kind) in QUICK else pytest.mark.prove)
        for kind in KINDS
        if chosen(kind)
    ]
    return pytest.mark.parametrize("kind", parameters)


every_kind = each_kind()
