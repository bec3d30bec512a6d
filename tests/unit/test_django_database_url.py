"""The URLs that Stagepost derives from Django's DATABASES lead where Django's own connections lead."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from stagepost.config.urls import masked
from stagepost.contrib.django.database_url import database_url_of
from stagepost.database.connection import MysqlDatabase
from stagepost.database.sqlite import sqlite_path
from stagepost.errors import ConfigurationError

HARD = "p@ss:/w%rd?#[] é&="


def url_of(vendor: str, *, in_memory: bool = False, **facts: Any) -> str:
    """Derive the URL from the settings of one connection, which Django has completed."""
    empty = {"NAME": "shop", "USER": "", "PASSWORD": "", "HOST": "", "PORT": "", "OPTIONS": {}}
    return database_url_of(
        SimpleNamespace(
            vendor=vendor, alias="default", settings_dict={**empty, **facts}, is_in_memory_db=lambda: in_memory
        )
    )


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({}, {"dbname": "shop"}),
        (
            {"USER": "a b", "PASSWORD": HARD, "HOST": "db.example.org", "PORT": 5433},
            {"user": "a b", "password": HARD, "host": "db.example.org", "port": "5433", "dbname": "shop"},
        ),
        (
            {"HOST": "/var/run/post gres", "USER": "me", "PORT": "5433"},
            {"host": "/var/run/post gres", "user": "me", "port": "5433", "dbname": "shop"},
        ),
        ({"HOST": "::1"}, {"host": "::1", "dbname": "shop"}),
        ({"HOST": "a,b", "PORT": "1,2"}, {"host": "a,b", "port": "1,2", "dbname": "shop"}),
        ({"NAME": "my/shop?"}, {"dbname": "my/shop?"}),
        ({"NAME": ""}, {"dbname": "postgres"}),
        ({"NAME": "", "OPTIONS": {"service": "shop"}}, {"service": "shop"}),
        (
            {"OPTIONS": {"sslmode": "verify-full", "sslrootcert": "/etc/a b.pem", "connect_timeout": 3}},
            {"sslmode": "verify-full", "sslrootcert": "/etc/a b.pem", "connect_timeout": "3", "dbname": "shop"},
        ),
        ({"OPTIONS": {"pool": True, "isolation_level": 2, "server_side_binding": True}}, {"dbname": "shop"}),
        (
            {"OPTIONS": {"assume_role": "shop owner", "options": "-c search_path=shop"}},
            {"options": "-c search_path=shop -c role=shop\\ owner", "dbname": "shop"},
        ),
    ],
)
def test_postgres(facts: dict[str, Any], wanted: dict[str, str]) -> None:
    assert conninfo_to_dict(url_of("postgresql", **facts)) == wanted


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({}, {"host": "127.0.0.1", "port": 3306, "user": "root", "password": "", "database": "shop"}),
        (
            {"USER": "a b", "PASSWORD": HARD, "HOST": "db", "PORT": "3307", "NAME": "my shop"},
            {"host": "db", "port": 3307, "user": "a b", "password": HARD, "database": "my shop"},
        ),
        ({"HOST": "::1", "PORT": 3307}, {"host": "::1", "port": 3307}),
        ({"HOST": "/run/mysqld/my sqld.sock"}, {"unix_socket": "/run/mysqld/my sqld.sock"}),
        ({"OPTIONS": {"unix_socket": "/run/a.sock", "read_default_file": "/etc/my.cnf"}},
         {"unix_socket": "/run/a.sock", "read_default_file": "/etc/my.cnf"}),
        ({"OPTIONS": {"ssl": {"ca": "/ca.pem", "key": "/k.pem"}}}, {"ssl_ca": "/ca.pem", "ssl_key": "/k.pem"}),
        ({"OPTIONS": {"charset": "utf8", "isolation_level": "serializable", "sql_mode": "ansi"}}, {"port": 3306}),
    ],
)  # fmt: skip
def test_mysql(facts: dict[str, Any], wanted: dict[str, Any]) -> None:
    options = MysqlDatabase.from_url(url_of("mysql", **facts)).options

    assert {name: options[name] for name in wanted} == wanted
    assert not options.keys() & {"isolation_level", "sql_mode", "ssl"}


@pytest.mark.parametrize("name", ["shop.db", "/srv/my shop/ä?#%20.db", Path("/srv/shop.db")])
def test_sqlite(name: str | Path) -> None:
    assert sqlite_path(url_of("sqlite", NAME=name), Path("/elsewhere")) == str(Path(name).absolute())


def test_sqlite_in_memory() -> None:
    url = url_of("sqlite", NAME="file:memorydb_default?mode=memory&cache=shared", in_memory=True)

    assert sqlite_path(url, Path("/elsewhere")) == ":memory:"


@pytest.mark.parametrize("vendor", ["postgresql", "mysql"])
def test_the_password_can_be_masked(vendor: str) -> None:
    for host in ("db", "/run/socket"):
        assert "secret" not in masked(url_of(vendor, USER="me", PASSWORD="secret", HOST=host))


@pytest.mark.parametrize(
    ("vendor", "name", "message"),
    [("oracle", "x", "is oracle. Stagepost supports"), ("sqlite", "file:shop.db?mode=ro", "Give the path of the file")],
)
def test_what_stagepost_cannot_open_is_refused(vendor: str, name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        url_of(vendor, NAME=name)
