"""A TCP proxy that breaks connections on purpose: cut, half-open, slow, or a reply lost after a statement."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Self, assert_never
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tests.fault.armed import ByteLimit, Direction, Fault, Moment, StatementTrap
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
        self._links: dict[_Link, asyncio.Task[None]] = {}
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
                link.is_swallowed = True

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
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    async def _hold_back(self) -> None:
        if self._latency or self._jitter:
            await asyncio.sleep(self._latency + self._random.uniform(0, self._jitter))

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut_down(self) -> None:
        if self._server is not None:
            self._server.close()
        self._reset_all()
        running = list(self._links.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the loop's next round

    def _reset_all(self) -> None:
        for link in self._links:
            link.reset()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, _Side(reader, writer), self._new_conversation())
        task = self._loop.create_task(link.run())
        self._links[link] = task
        task.add_done_callback(lambda _: self._links.pop(link))


@dataclass(frozen=True, eq=False)
class _Side:
    """Our end of one TCP connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        with contextlib.suppress(OSError):
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.writer.transport.abort()


class _Link:
    """A client's connection and the one to the server that belongs to it; lives in the proxy's thread."""

    def __init__(self, proxy: FaultProxy, client: _Side, conversation: Conversation) -> None:
        self.is_swallowed = False
        self._proxy = proxy
        self._client = client
        self._server: _Side | None = None
        self._conversation = conversation
        self._caught: tuple[StatementTrap, Statement] | None = None

    async def run(self) -> None:
        match self._proxy._mode:
            case Mode.REFUSE:
                self.reset()
            case Mode.SWALLOW:
                self.is_swallowed = True
                await self._pump(self._client, self._from_client)
                self._client.writer.close()
            case Mode.PASS:
                await self._connect_and_forward()
            case other:
                assert_never(other)

    def reset(self) -> None:
        self._client.reset()
        if self._server is not None:
            self._server.reset()

    async def _connect_and_forward(self) -> None:
        try:
            self._server = _Side(*await asyncio.open_connection(*self._proxy._target))
        except OSError:
            self.reset()
            return
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(self._pump(self._client, self._from_client, self._server))
            pumps.create_task(self._pump(self._server, self._from_server, self._client))
        self._client.writer.close()
        self._server.writer.close()

    async def _pump(
        self, source: _Side, carry: Callable[[bytes], Coroutine[Any, Any, None]], target: _Side | None = None
    ) -> None:
        try:
            while data := await source.reader.read(PIECE):
                await carry(data)
            if target is not None and not self.is_swallowed and not target.writer.is_closing():
                target.writer.write_eof()
        except OSError:
            if not self.is_swallowed:
                self.reset()

    async def _from_client(self, data: bytes) -> None:
        trap = self._proxy._trap
        for statement in self._conversation.client_sent(data):
            if trap is not None and trap.catches(statement):
                self._caught = (trap, statement)
        if self._caught is not None and self._caught[0].moment is Moment.BEFORE_SERVER_SEES_IT:
            self._reset_by(self._caught[0])
        else:
            await self._forward(data, Direction.TO_SERVER)

    async def _from_server(self, data: bytes) -> None:
        self._conversation.server_sent(data)
        if self._caught is None:
            await self._forward(data, Direction.TO_CLIENT)
            return
        trap, statement = self._caught
        if self._conversation.answers >= statement.answers:
            self._reset_by(trap)

    async def _forward(self, data: bytes, direction: Direction) -> None:
        await self._proxy._hold_back()
        target = self._server if direction is Direction.TO_SERVER else self._client
        if self.is_swallowed or target is None or target.writer.is_closing():
            return
        limit = self._proxy._limit
        target.writer.write(limit.take(data, direction) if limit else data)
        if limit and limit.is_used_up:
            self._proxy._limit = None
            self._reset_by(limit)
        else:
            await target.writer.drain()

    def _reset_by(self, fault: Fault) -> None:
        self.reset()
        fault.fire()
