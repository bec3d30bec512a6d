"""Redis for tests: a private instance, and separate numbered databases on any server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from tests.services.names import fresh_name, is_stale
from tests.services.processes import LOOPBACK, PrivateServer, ServerFailed, find_program
from tests.services.server import Server, database_in, with_database

OWNER_KEY = "stagepost-test-owner"
NUMBERS = [str(number) for number in range(1, 16)]  # a default server has 16, and 0 may be somebody's


class RedisInstance(PrivateServer):
    """A server that keeps nothing on disk."""

    label = "redis"
    accounts = ("redis",)

    @classmethod
    def missing_program(cls) -> str | None:
        return None if find_program("redis-server") else "redis-server"

    def prepare(self) -> None:
        """Nothing to make: the server starts empty."""

    def command(self) -> list[str]:
        program = str(find_program("redis-server"))
        return [
            program,
            "--port",
            str(self.port),
            "--bind",
            LOOPBACK,
            "--dir",
            str(self.directory),
            "--save",
            "",
        ]

    def is_ready(self) -> bool:
        return refusal(self.url) is None

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"


class RedisServer(Server):
    """Any Redis server with 16 databases; a run marks those it uses with a key that tells whose they are."""

    def _create(self) -> str:
        for number in NUMBERS:
            with self._session(number) as session:
                if session.call("DBSIZE") == "0" and session.call("SET", OWNER_KEY, fresh_name(), "NX") == "OK":
                    return number
        raise ServerFailed(f"{self.url}: databases {NUMBERS[0]} to {NUMBERS[-1]} are all in use; empty one")

    def _drop(self, name: str) -> None:
        with self._session(name) as session:
            session.call("FLUSHDB")

    def _stale(self) -> Iterator[str]:
        for number in NUMBERS:
            with self._session(number) as session:
                owner = session.call("GET", OWNER_KEY)
            if owner is not None and is_stale(owner):
                yield number

    def _session(self, number: str) -> contextlib.AbstractContextManager[_Session]:
        return _session(with_database(self.url, number))


def standard_urls() -> list[str]:
    return [f"redis://{LOOPBACK}:6379/0"]


def refusal(url: str) -> str | None:
    """Say why the server cannot be used; None if it can."""
    try:
        with _session(url) as session:
            session.call("PING")
    except (OSError, ServerFailed) as error:
        return str(error)
    return None


class _Session:
    """Just enough of the protocol for the harness: commands whose reply is one line or one string."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._replies = connection.makefile("rb")

    def call(self, *words: str) -> str | None:
        parts = b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
        self._connection.sendall(b"*%d\r\n%s" % (len(words), parts))
        kind, text = self._line()
        if kind == "-":
            raise ServerFailed(f"redis refused {words[0]}: {text}")
        if kind != "$":
            return text
        return None if text == "-1" else self._replies.read(int(text) + 2)[:-2].decode()

    def _line(self) -> tuple[str, str]:
        line = self._replies.readline().decode().rstrip("\r\n")
        if not line:
            raise ServerFailed("redis closed the connection")
        return line[0], line[1:]


@contextlib.contextmanager
def _session(url: str) -> Iterator[_Session]:
    parts = urlsplit(url)
    address = (parts.hostname or LOOPBACK, parts.port or 6379)
    with socket.create_connection(address, timeout=60) as connection:
        session = _Session(connection)
        try:
            if parts.password:
                user = [unquote(parts.username)] if parts.username else []
                session.call("AUTH", *user, unquote(parts.password))
            session.call("SELECT", database_in(url) or "0")
            yield session
        finally:
            session._replies.close()
