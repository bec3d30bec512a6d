"""A TCP proxy that breaks connections on purpose: cut, half-open, slow, or a reply lost after a statement."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from enum import Enum
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tests.fault.wire import (
    Conversation,
    MysqlConversation,
    PostgresConversation,
    RawConversation,
    Statement,
)

LOOPBACK = "127.0.0.1"
COMMIT = rb"^\s*commit\b"
PIECE = 65536
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
CONVERSATIONS: dict[str, tuple[Callable[[], Conversation], int]] = {
    "postgresql": (PostgresConversation, 5432),
    "mysql": (MysqlConversation, 3306),
}


class Mode(Enum):
    PASS = "pass"
    SWALLOW = "swallow"
    REFUSE = "refuse"


class Direction(Enum):
    TO_SERVER = "to server"
    TO_CLIENT = "to client"


class Moment(Enum):
    BEFORE_SERVER_SEES_IT = "before the server sees it"
    AFTER_SERVER_ANSWERED = "after the server answered"


class Fault:
    """A fault that is armed; counts how often it fired, and lets a test wait for it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._changed = threading.Condition()
        self._fired = 0

    @property
    def fired(self) -> int:
        with self._changed:
            return self._fired

    def wait(self, *, times: int = 1, seconds: float = 10.0) -> None:
        """Block until it has fired so often."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._fired >= times, seconds):
                raise TimeoutError(f"{self._what}: fired {self._fired} times within {seconds:g} s, not {times}")

    def fire(self) -> None:
        with self._changed:
            self._fired += 1
            self._changed.notify_all()


class ByteLimit(Fault):
    """Cuts the connection on which the n-th byte from now travels."""

    def __init__(self, count: int, direction: Direction | None) -> None:
        super().__init__(f"cut after {count} bytes")
        self.direction = direction
        self._left = count

    def allowed(self, data: bytes, direction: Direction) -> bytes:
        """Return what may pass; fires when that is the last of it."""
        if self.fired or self.direction not in {None, direction}:
            return data
        passing = data[: self._left]
        self._left -= len(passing)
        if self._left == 0:
            self.fire()
        return passing


class StatementTrap(Fault):
    """Cuts a connection at a statement that matches: at the n-th match, and at the `times - 1` that follow."""

    def __init__(self, pattern: bytes, moment: Moment, *, nth: int, times: int | None) -> None:
        super().__init__(f"cut at {pattern!r} {moment.value}")
        self.moment = moment
        self.matched = 0
        self._pattern = re.compile(pattern, re.IGNORECASE)
        self._first = nth
        self._last = None if times is None else nth + times - 1

    def catches(self, statement: Statement) -> bool:
        if not self._pattern.search(statement.text):
            return False
        self.matched += 1
        return self.matched >= self._first and (self._last is None or self.matched <= self._last)


class FaultProxy:
    """Listens on loopback and forwards to one server; runs in a thread of its own.

    Faults act on what travels after they are set. `pass_through` ends them all.
    """

    def __init__(self, host: str, port: int, conversation: Callable[[], Conversation] = RawConversation) -> None:
        self._target = (host, port)
        self._new_conversation = conversation
        self._mode = Mode.PASS
        self._latency, self._jitter = 0.0, 0.0
        self._random = random.Random(0)  # noqa: S311 (jitter should be the same in every run)
        self._limit: ByteLimit | None = None
        self._trap: StatementTrap | None = None
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self.port = 0

    @classmethod
    def to(cls, url: str) -> Self:
        """A proxy in front of the server in a `postgresql://` or `mysql://` URL; see `url_for`."""
        parts = urlsplit(url)
        conversation, default_port = CONVERSATIONS[parts.scheme]
        return cls(parts.hostname or LOOPBACK, parts.port or default_port, conversation)

    def url_for(self, url: str) -> str:
        """The same address through this proxy, without TLS, which would hide the statements."""
        parts = urlsplit(url)
        account, at, _ = parts.netloc.rpartition("@")
        query = dict(parse_qsl(parts.query))
        if parts.scheme == "postgresql":
            query["sslmode"] = "disable"
        return urlunsplit(parts._replace(netloc=f"{account}{at}{LOOPBACK}:{self.port}", query=urlencode(query)))

    @property
    def open_connections(self) -> int:
        return len(self._links)

    def pass_through(self) -> None:
        """End every fault; connections that were swallowed stay dead, new ones pass."""

        def heal() -> None:
            self._mode = Mode.PASS
            self._latency = self._jitter = 0.0
            self._limit = self._trap = None

        self._in_loop(heal)

    def cut(self) -> None:
        """Reset every open connection on both sides; new ones pass."""
        self._in_loop(self._reset_all)

    def refuse(self) -> None:
        """Reset every open connection, and new ones as they come."""

        def refuse() -> None:
            self._mode = Mode.REFUSE
            self._reset_all()

        self._in_loop(refuse)

    def swallow(self) -> None:
        """Half-open: both sides can send, nothing arrives, and nobody is told.

        The kernel goes on acknowledging what is sent, so only deadlines notice, not TCP keepalives.
        """

        def swallow() -> None:
            self._mode = Mode.SWALLOW
            for link in self._links:
                link.is_dead = True

        self._in_loop(swallow)

    def delay(self, seconds: float, *, jitter: float = 0.0) -> None:
        """Hold back each piece, in both directions, by `seconds` plus up to `jitter` more."""

        def slow_down() -> None:
            self._latency, self._jitter = seconds, jitter

        self._in_loop(slow_down)

    def cut_after(self, count: int, *, direction: Direction | None = None) -> ByteLimit:
        """Let `count` more bytes pass in all, then reset the connection on which the last one went."""
        limit = ByteLimit(count, direction)
        self._in_loop(lambda: setattr(self, "_limit", limit))
        return limit

    def drop_reply(self, pattern: bytes = COMMIT, *, nth: int = 1, times: int | None = 1) -> StatementTrap:
        """Forward the statement, wait for the server's answer, then reset without delivering it.

        `pattern` is a regular expression for the start or inside of one statement, in any case of letters.
        With `times=None` it fires at the n-th match and at each one after it.
        """
        return self._arm(StatementTrap(pattern, Moment.AFTER_SERVER_ANSWERED, nth=nth, times=times))

    def drop_request(self, pattern: bytes = COMMIT, *, nth: int = 1, times: int | None = 1) -> StatementTrap:
        """Reset before the statement reaches the server; to the client this looks like `drop_reply`."""
        return self._arm(StatementTrap(pattern, Moment.BEFORE_SERVER_SEES_IT, nth=nth, times=times))

    def start(self) -> None:
        self._thread.start()
        self._run(self._listen())

    def close(self) -> None:
        """Reset what is open and end the thread."""
        if self._thread.is_alive():
            self._run(self._shut_down())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _arm(self, trap: StatementTrap) -> StatementTrap:
        self._in_loop(lambda: setattr(self, "_trap", trap))
        return trap

    def _in_loop(self, change: Callable[[], None]) -> None:
        async def apply() -> None:
            change()

        self._run(apply())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut_down(self) -> None:
        assert self._server is not None
        self._server.close()
        self._reset_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _reset_all(self) -> None:
        for link in list(self._links):
            link.reset()
