"""PgBouncer in transaction mode, in front of a test's PostgreSQL."""

from __future__ import annotations

import contextlib
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg

from tests.services.processes import LOOPBACK, PrivateServer, find_program


class PgBouncer(PrivateServer):
    """A pooler of a test's own; it lends a server session for one transaction at a time."""

    label = "pgbouncer"
    accounts = ("postgres",)

    def __init__(self, target: str) -> None:
        super().__init__()
        self._target = urlsplit(target)

    @property
    def url(self) -> str:
        account, at, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{account}{at}{LOOPBACK}:{self.port}"))

    def prepare(self) -> None:
        user, password = unquote(self._target.username or ""), unquote(self._target.password or "")
        (self.directory / "users.txt").write_text(f'"{user}" "{password}"\n')
        settings = {
            "listen_addr": LOOPBACK,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": self.directory / "users.txt",
            "pool_mode": "transaction",
            "ignore_startup_parameters": "extra_float_digits",
        }
        lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
        server = f"* = host={self._target.hostname} port={self._target.port or 5432}"
        (self.directory / "pgbouncer.ini").write_text(f"[databases]\n{server}\n[pgbouncer]\n{lines}\n")

    def command(self) -> list[str]:
        return [str(find_program("pgbouncer")), str(self.directory / "pgbouncer.ini")]

    def is_ready(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url, connect_timeout=2).close()
            return True
        return False
