"""MariaDB for tests: a private instance, and fresh databases on any server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tests.services.names import fresh_name, is_stale
from tests.services.processes import LOOPBACK, PrivateServer, find_program
from tests.services.server import Server, database_in

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

UNSYNCED = {"innodb-flush-log-at-trx-commit": "0", "innodb-doublewrite": "OFF", "max-connections": "500"}
"""Settings for a server whose data need not survive the machine: commits do not wait for the disk."""
PROTOCOL_10 = 0x0A


class MariadbInstance(PrivateServer):
    """A private data directory; root has no password on loopback."""

    label = "mariadb"
    accounts = ("mysql",)

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.data = self.directory / "data"
        self.settings = dict(settings or {})

    @classmethod
    def missing_program(cls) -> str | None:
        if _server_program() is None:
            return "mariadbd"
        return "mariadb-install-db" if _install_program() is None else None

    def prepare(self) -> None:
        options = ["--no-defaults", f"--datadir={self.data}", "--auth-root-authentication-method=normal"]
        self.run_tool(str(_install_program()), *options, "--skip-test-db", "--skip-name-resolve")

    def command(self) -> list[str]:
        settings = {
            "datadir": str(self.data),
            "port": str(self.port),
            "bind-address": LOOPBACK,
            "socket": str(self.directory / "socket"),
            "pid-file": str(self.directory / "pid"),
            "skip-name-resolve": "ON",
        }
        options = [f"--{name}={value}" for name, value in (settings | self.settings).items()]
        return [str(_server_program()), "--no-defaults", *options]

    def is_ready(self) -> bool:
        """Whether the server greets: it listens a moment before it can."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((LOOPBACK, self.port), timeout=1) as connection,
        ):
            greeting = connection.recv(5)
            return len(greeting) == 5 and greeting[4] == PROTOCOL_10
        return False

    @property
    def url(self) -> str:
        return f"mysql://root@{LOOPBACK}:{self.port}/mysql"


class MariadbServer(Server):
    """Any MariaDB server on which we may make databases."""

    def _create(self) -> str:
        name = fresh_name()
        with _cursor(self.url) as cursor:
            cursor.execute(f"create database {name} character set utf8mb4")
        return name

    def _drop(self, name: str) -> None:
        with _cursor(self.url) as cursor:
            # Their metadata locks would make the drop wait.
            cursor.execute("select id from information_schema.processlist where db = %s", (name,))
            for (connection_id,) in cursor.fetchall():
                kill_connection(cursor, connection_id)
            cursor.execute(f"drop database if exists {name}")

    def _stale(self) -> list[str]:
        with _cursor(self.url) as cursor:
            cursor.execute("show databases")
            return [name for (name,) in cursor.fetchall() if is_stale(name)]


def standard_urls() -> list[str]:
    return [f"mysql://root@{LOOPBACK}:3306/mysql"]


def refusal(url: str) -> str | None:
    """Say why databases cannot be made there; None if they can."""
    import pymysql

    try:
        with _cursor(url) as cursor:
            cursor.execute("show grants")
            grants = " ".join(grant for (grant,) in cursor.fetchall())
    except pymysql.MySQLError as error:
        return str(error).splitlines()[0]
    may_create = "ALL PRIVILEGES ON *.*" in grants or "CREATE" in grants
    return None if may_create else "this account may not create databases"


def connect(url: str) -> Connection[Cursor]:
    """Open a plain connection, with autocommit, to a `mysql://user:password@host:port/database` address."""
    import pymysql

    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or LOOPBACK,
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=database_in(url) or None,
        autocommit=True,
        connect_timeout=60,
        ssl_disabled=True,  # else it reads all certificates of the machine, for 30 ms of CPU
    )


@contextlib.contextmanager
def _cursor(url: str) -> Iterator[Cursor]:
    with contextlib.closing(connect(url)) as connection, connection.cursor() as cursor:
        yield cursor


def kill_connection(cursor: Cursor, connection_id: int) -> None:
    import pymysql

    with contextlib.suppress(pymysql.MySQLError):  # it may have ended by itself
        cursor.execute("kill %s", (connection_id,))


def _server_program() -> Path | None:
    return find_program("mariadbd") or find_program("mysqld")


def _install_program() -> Path | None:
    return find_program("mariadb-install-db") or find_program("mysql_install_db")
