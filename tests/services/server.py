"""The interface of a service for tests: separate databases, empty at first and dropped at the end."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit, urlunsplit

from tests.services.processes import PrivateServer


class Server(ABC):
    """A server that may be shared; closing it stops it only if it is a private instance of this run."""

    def __init__(self, url: str, *, origin: str, instance: PrivateServer | None = None) -> None:
        self.url = url
        self.origin = origin
        self._instance = instance
        self._databases: list[str] = []
        for name in self._stale():
            self._drop(name)

    def fresh_database(self) -> str:
        """Make an empty database and return its URL; dropped at the end of the run at the latest."""
        name = self._create()
        self._databases.append(name)
        return with_database(self.url, name)

    def drop_database(self, url: str) -> None:
        """Drop a database of this run, even while connections to it are open."""
        name = database_in(url)
        self._databases.remove(name)
        self._drop(name)

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        url = self.fresh_database()
        try:
            yield url
        finally:
            self.drop_database(url)

    def close(self) -> None:
        if self._instance is not None:
            self._instance.close()
        else:
            while self._databases:
                self._drop(self._databases.pop())

    @abstractmethod
    def _create(self) -> str:
        """Make an empty database and return its name."""

    @abstractmethod
    def _drop(self, name: str) -> None: ...

    @abstractmethod
    def _stale(self) -> Iterable[str]:
        """Names of databases that dead runs left behind."""


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def database_in(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")
