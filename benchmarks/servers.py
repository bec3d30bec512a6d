"""The private databases and brokers of a run, whose settings, data and CPU time nobody else shares."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.services.locate import MARIADB, POSTGRES, RABBITMQ, REDIS, Service
from tests.services.mariadb import MariadbInstance, MariadbServer
from tests.services.postgres import PostgresInstance, PostgresServer
from tests.services.processes import PrivateServer
from tests.services.rabbitmq import RabbitmqInstance, RabbitmqServer
from tests.services.redis import RedisInstance, RedisServer
from tests.services.server import Server

__all__ = ["SETTINGS", "Address", "Servers"]

SETTINGS: dict[str, dict[str, str]] = {
    # Default durability, made explicit. The rest keeps a small default cache, and checkpoints during a figure, from
    # dominating the result.
    "postgres": {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "shared_buffers": "512MB",
        "max_wal_size": "8GB",
        "max_connections": "300",
    },
    "mariadb": {
        "innodb-flush-log-at-trx-commit": "1",
        "innodb-doublewrite": "ON",
        "innodb-buffer-pool-size": "512M",
        "innodb-log-file-size": "2G",
        "max-connections": "300",
    },
    # The durable setting that the Redis documentation recommends; a power cut loses a second of jobs.
    "redis": {"appendonly": "yes", "appendfsync": "everysec"},
    "rabbitmq": {},
    "sqlite": {"journal_mode": "wal", "synchronous": "full"},
}
"""The servers' settings. SQLite's are set by each connection, and are listed here for the report."""

PACKAGES: dict[str, Service[Any]] = {"postgres": POSTGRES, "mariadb": MARIADB, "redis": REDIS, "rabbitmq": RABBITMQ}


class DurableRedis(RedisInstance):
    """Redis that writes every command to its log."""

    def command(self) -> list[str]:
        """Add the settings."""
        options = [word for name, value in SETTINGS["redis"].items() for word in (f"--{name}", value)]
        return [*super().command(), *options]


@dataclass(frozen=True)
class Address:
    """An empty database with its server's processes, and the same for a broker if there is one."""

    url: str
    server_pids: tuple[int, ...]
    broker_url: str = ""
    broker_pids: tuple[int, ...] = ()


class ServerMissing(RuntimeError):
    """The programs of a server are not installed."""


class Servers:
    """Starts each server when it is first needed, and stops all of them at the end."""

    def __init__(self) -> None:
        self._started: dict[str, tuple[PrivateServer, Server]] = {}
        self._files = tempfile.TemporaryDirectory(prefix="stagepost-bench-")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._started:
            _, (_, server) = self._started.popitem()
            server.close()
        self._files.cleanup()

    @contextlib.contextmanager
    def lend(self, service: str, broker: str = "") -> Iterator[Address]:
        """Lend an empty database, and an empty broker if one is named."""
        with self.database(service) as address:
            if not broker:
                yield address
                return
            with self.database(broker) as beside:
                yield replace(address, broker_url=beside.url, broker_pids=beside.server_pids)

    @contextlib.contextmanager
    def database(self, service: str) -> Iterator[Address]:
        """Lend an empty database; it is dropped afterwards."""
        if service == "sqlite":
            with tempfile.TemporaryDirectory(dir=self._files.name) as directory:
                yield Address(f"sqlite:///{directory}/bench.db", ())
            return
        instance, server = self._start(service)
        with server.database() as url:
            yield Address(url, (instance.pid,))

    def missing(self, service: str) -> str | None:
        """Explain why a server is not available; None if it is."""
        if service == "sqlite":
            return None
        program = PACKAGES[service].instance.missing_program()
        return program and f"{program} is not installed. To fix it: {PACKAGES[service].remedy}"

    def version(self, service: str) -> str:
        """The version that ran; empty if it was not needed."""
        if service == "sqlite":
            return sqlite3.sqlite_version
        return _version(self._started[service][0]) if service in self._started else ""

    @property
    def directory(self) -> Path:
        """The directory of the servers' data."""
        return Path(self._files.name)

    def _start(self, service: str) -> tuple[PrivateServer, Server]:
        if service not in self._started:
            if reason := self.missing(service):
                raise ServerMissing(f"{service}: {reason}")
            instance, server = MAKERS[service]()
            instance.start()
            self._started[service] = instance, server(instance.url, origin="private", instance=instance)
        return self._started[service]


def _version(instance: PrivateServer) -> str:
    """Ask the server's own program."""
    if isinstance(instance, RabbitmqInstance):
        return instance.control("version").strip()
    done = subprocess.run([instance.command()[0], "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"[0-9]+[.][0-9][^ ,-]*", done.stdout)
    return found[0] if found else "unknown"


MAKERS: dict[str, Callable[[], tuple[PrivateServer, type[Server]]]] = {
    "postgres": lambda: (PostgresInstance(SETTINGS["postgres"]), PostgresServer),
    "mariadb": lambda: (MariadbInstance(SETTINGS["mariadb"]), MariadbServer),
    "redis": lambda: (DurableRedis(), RedisServer),
    "rabbitmq": lambda: (RabbitmqInstance(), RabbitmqServer),
}
