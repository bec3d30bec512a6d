"""PostgreSQL for tests: a private instance, and fresh databases on any server."""

from __future__ import annotations

import contextlib
import getpass
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tests.services.names import fresh_name, is_stale
from tests.services.processes import LOOPBACK, STOP_SECONDS, PrivateServer, find_program, wait_until
from tests.services.server import Server

if TYPE_CHECKING:
    import psycopg

UNSYNCED = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "300"}
"""Settings for a server whose data need not survive the machine: commits do not wait for the disk."""
PROGRAM_DIRECTORIES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


class PostgresInstance(PrivateServer):
    """A private cluster that trusts every connection from loopback."""

    label = "postgres"
    accounts = ("postgres",)
    quick_stop: ClassVar[signal.Signals] = signal.SIGINT

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.data = self.directory / "data"
        self.settings = dict(settings or {})

    @classmethod
    def missing_program(cls) -> str | None:
        return next((name for name in ("initdb", "postgres") if _program(name) is None), None)

    def prepare(self) -> None:
        # Not synced: a test's cluster need not survive a power cut between initdb and the first start.
        options = ["--no-sync", "--no-instructions", "--auth=trust", "--username=postgres"]
        self.run_tool(str(_program("initdb")), *options, "--encoding=UTF8", "--locale=C", "-D", str(self.data))

    def command(self) -> list[str]:
        settings = {"listen_addresses": LOOPBACK, "port": str(self.port), "unix_socket_directories": ""}
        options = [f"--{name}={value}" for name, value in (settings | self.settings).items()]
        return [str(_program("postgres")), "-D", str(self.data), *options]

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError, IndexError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return lines[0] == str(self.pid) and lines[7].strip() == "ready"
        return False

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{LOOPBACK}:{self.port}/postgres"


class PostgresServer(Server):
    """Any PostgreSQL server on which we may make databases."""

    def _create(self) -> str:
        name = fresh_name()
        with _connected(self.url) as connection:
            connection.execute(f"create database {name} template template0 encoding 'UTF8' locale 'C'".encode())
        return name

    def _drop(self, name: str) -> None:
        """Drop it even if there are connections; the server itself waits for them for at most 5 s."""
        import psycopg

        def is_dropped() -> bool:
            with contextlib.suppress(psycopg.errors.ObjectInUse), _connected(self.url) as connection:
                connection.execute(f"drop database if exists {name} with (force)".encode())
                return True
            return False

        wait_until(is_dropped, f"sessions in {name} to end", seconds=STOP_SECONDS)

    def _stale(self) -> list[str]:
        with _connected(self.url) as connection:
            names = [str(name) for (name,) in connection.execute("select datname from pg_database")]
        return [name for name in names if is_stale(name)]


def standard_urls() -> list[str]:
    users = dict.fromkeys(["postgres", getpass.getuser()])
    return [f"postgresql://{user}@{LOOPBACK}:5432/postgres" for user in users]


def refusal(url: str) -> str | None:
    """Say why databases cannot be made there; None if they can."""
    import psycopg

    try:
        with _connected(url) as connection:
            row = connection.execute(
                "select rolcreatedb or rolsuper from pg_roles where rolname = current_user"
            ).fetchone()
    except psycopg.Error as error:
        return str(error).splitlines()[0]
    return None if row and row[0] else "this role may not create databases"


@contextlib.contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    import psycopg

    with psycopg.connect(url, autocommit=True, connect_timeout=60) as connection:
        yield connection


def _program(name: str) -> Path | None:
    return find_program(name, PROGRAM_DIRECTORIES)
