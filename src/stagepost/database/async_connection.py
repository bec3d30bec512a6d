"""Asynchronous connections that `app.transaction()` lends to async code, configured as the blocking ones are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol, TypeVar

from stagepost.database.connection import (
    Connection,
    Database,
    MysqlDatabase,
    PostgresDatabase,
    connecting,
    prepare_for_use,
    require_unbroken,
)
from stagepost.database.lent import ask_watched_async
from stagepost.database.opening import shut_down
from stagepost.database.pool import Pool
from stagepost.database.session import (
    CALL_SECONDS,
    CONNECT_SECONDS,
    configure_async,
    driver,
    mysql_configuration,
    postgres_begin,
    postgres_configuration,
    postgres_options,
)
from stagepost.database.sqlite import SqliteDatabase
from stagepost.errors import ConfigurationError

__all__ = ["AsyncConnection", "connect_async", "uninterrupted"]

T = TypeVar("T")

INTERRUPT_SECONDS = 0.05
"""How long a rollback waits for a statement in SQLite's thread before it interrupts the statement, again and again."""


class AsyncConnection(Protocol):
    """An asynchronous driver's connection, brought to one shape."""

    raw: Any
    """What the driver calls a connection; callers' statements go through it."""
    is_kept: bool
    """It is worth keeping for the next transaction."""

    async def begin(self, *, read_only: bool = False) -> None:
        """Open a transaction; one that writes takes its locks early rather than failing late."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def close(self) -> None: ...

    def abort(self) -> None:
        """Break off what is being waited for, from any thread; the connection is useless afterwards."""

    def abandon(self) -> None:
        """Release it without its event loop, which has ended."""


async def connect_async(database: Database, pool: Pool) -> AsyncConnection:
    """Open a connection on the running loop; a database in memory lends the only one of its `pool`."""
    match database:
        case SqliteDatabase() if database.is_memory:
            return await _open_sqlite(pool.acquire, partial(_return_shared, pool), is_kept=False)
        case SqliteDatabase():
            return await _open_sqlite(database.connect, lambda opened: opened.close(), is_kept=True)
        case PostgresDatabase():
            return await _open_postgres(database)
        case MysqlDatabase():
            return await _open_mysql(database)
        case _:
            raise ConfigurationError(f"{type(database).__name__} has no asynchronous connections: use `with` instead.")


def _return_shared(pool: Pool, shared: Connection) -> None:
    try:
        shared.rollback()  # does nothing unless a transaction is still open
    finally:
        pool.give_back(shared, is_sound=True)  # whatever happened: the database lives in this connection


async def uninterrupted(call: Awaitable[T]) -> T:
    """Wait until a call ends, even if the caller is cancelled meanwhile; the cancellation is raised afterwards."""
    future = asyncio.ensure_future(call)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not future.cancelled():
            future.exception()  # so that the loop does not report it as lost
        raise cancelled
    return future.result()


async def _open_sqlite(
    connect: Callable[[], Connection], release: Callable[[Connection], None], *, is_kept: bool
) -> AiosqliteConnection:
    aiosqlite = driver("aiosqlite", extra="aiosqlite")
    connection = AiosqliteConnection(aiosqlite.Connection(_refuse, iter_chunk_size=64), release, is_kept)
    try:
        await uninterrupted(connection.start(connect))
    except BaseException:
        await connection.close()
        raise
    return connection


def _refuse() -> None:
    raise AssertionError("the connection is opened by `start`")


@dataclass(eq=False)
class AiosqliteConnection:
    """aiosqlite, whose thread runs one of our blocking connections.

    What aiosqlite offers itself leaves a file open, or its thread without a loop to answer to, if it is cancelled.
    """

    raw: Any
    release: Callable[[Connection], None]
    is_kept: bool
    blocking: Any = None
    """A Connection, while it is open."""
    _stopped: asyncio.Future[Any] | None = None

    def start(self, connect: Callable[[], Connection]) -> asyncio.Future[Any]:
        """Start the thread and let it open the connection."""
        self.raw._thread.daemon = True  # noqa: SLF001 - one that nobody closed must not keep the process from exiting
        self.raw._thread.start()  # noqa: SLF001

        def open_in_thread() -> None:
            self.blocking = connect()
            self.raw._connection = self.blocking.raw  # noqa: SLF001

        return self._in_thread(open_in_thread)

    async def begin(self, *, read_only: bool = False) -> None:
        await self.raw._execute(self.blocking.begin, read_only=read_only)  # noqa: SLF001 - in its thread

    async def commit(self) -> None:
        await self.raw._execute(self.blocking.commit)  # noqa: SLF001

    async def rollback(self) -> None:
        rolling_back = asyncio.ensure_future(self.raw._execute(self.blocking.rollback))  # noqa: SLF001
        # A statement goes on in the thread although its caller was cancelled, and may have started only after that.
        while not (await asyncio.wait([rolling_back], timeout=INTERRUPT_SECONDS))[0]:
            self.abort()
        await rolling_back

    async def close(self) -> None:
        if self._stopped is None:
            if self.raw._running:  # noqa: SLF001 - otherwise the caller has closed it
                self._in_thread(self._release)
            self._stopped = self.raw.stop()
        if self._stopped is not None and self.raw._thread.is_alive():  # noqa: SLF001
            await uninterrupted(self._stopped)

    def abort(self) -> None:
        if self.blocking is not None:
            self.blocking.abort()

    def abandon(self) -> None:
        if self.blocking is not None:
            self._release()
        self.raw.stop()

    def _release(self) -> None:
        opened, self.blocking = self.blocking, None
        self.raw._connection = None  # noqa: SLF001 - so that it does not close what it was lent
        if opened is not None:
            self.release(opened)

    def _in_thread(self, call: Callable[[], None]) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self.raw._tx.put_nowait((future, call))  # noqa: SLF001
        return future


async def _open_postgres(database: PostgresDatabase) -> PsycopgConnection:
    psycopg = driver("psycopg", extra="postgres")
    with connecting(database):
        raw = await psycopg.AsyncConnection.connect(database.url, autocommit=True, **postgres_options(database.url))
        try:
            with database.deadlines.limit(CONNECT_SECONDS, partial(shut_down, raw.fileno())):
                configuration = postgres_configuration(raw.info.backend_pid, for_handlers=database.for_handlers)
                is_pooled = await configure_async(configuration, lambda sql: _first_row(raw, sql))
                prepare_for_use(raw, is_pooled=is_pooled)
        except BaseException:
            await raw.close()
            raise
    return PsycopgConnection(raw, is_pooled)


async def _first_row(raw: Any, sql: str) -> Any:
    cursor = await raw.execute(sql)
    return await cursor.fetchone() if cursor.description else None


@dataclass(eq=False)
class PsycopgConnection:
    """psycopg in autocommit mode, so that transactions begin where we say."""

    raw: Any
    is_pooled: bool
    is_kept: bool = True

    async def begin(self, *, read_only: bool = False) -> None:  # noqa: ARG002 - readers wait for nobody
        await self.raw.execute(postgres_begin(is_pooled=self.is_pooled), prepare=False)

    async def commit(self) -> None:
        require_unbroken(self.raw)
        await self.raw.execute("commit", prepare=False)

    async def rollback(self) -> None:
        await self.raw.execute("rollback", prepare=False)

    async def close(self) -> None:
        await self.raw.close()

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            shut_down(self.raw.fileno())

    def abandon(self) -> None:
        with contextlib.suppress(StopIteration):
            self.raw.close().send(None)  # it waits for nothing


async def _open_mysql(database: MysqlDatabase) -> AsyncmyConnection:
    driver("asyncmy", extra="asyncmy")
    with connecting(database), _saying_what_timed_out():
        async with asyncio.timeout(CONNECT_SECONDS):
            raw = _asyncmy_connection()(**_asyncmy_options(database))
            await raw.connect()
            try:
                await configure_async(mysql_configuration(raw.server_version), partial(_first_row_of_mysql, raw))
            except BaseException:
                raw.close()
                raise
    return AsyncmyConnection(raw, database)


@contextlib.contextmanager
def _saying_what_timed_out() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise TimeoutError(f"no answer in {CONNECT_SECONDS} s") from error


async def _first_row_of_mysql(raw: Any, sql: str) -> Any:
    async with raw.cursor() as cursor:
        await cursor.execute(sql)
        return await cursor.fetchone() if cursor.description else None


def _asyncmy_options(database: MysqlDatabase) -> dict[str, Any]:
    """Take the options as PyMySQL understands them, so that one URL means the same for both drivers."""
    read = database.unconnected()
    return {
        "host": read.host,
        "port": read.port,
        "unix_socket": read.unix_socket,
        "user": read.user.decode() if isinstance(read.user, bytes) else read.user,
        "password": read.password.decode("latin1"),
        "database": read.db.decode() if isinstance(read.db, bytes) else read.db,
        "charset": read.charset,
        "autocommit": True,
        "init_command": read.init_command,
        "connect_timeout": database.options.get("connect_timeout", CONNECT_SECONDS),
        "read_timeout": database.options.get("read_timeout", CALL_SECONDS),
        "ssl": read.ctx if read.ssl else None,
        "requires_ssl": read._ssl_required,  # noqa: SLF001 - of our own subclass
    }


@cache
def _asyncmy_connection() -> type[Any]:
    base: Any = driver("asyncmy.connection", extra="asyncmy").Connection
    encrypted: int = driver("asyncmy.constants.CLIENT", extra="asyncmy").SSL

    class Connection(base):  # type: ignore[misc]
        """Differs from asyncmy's class in two ways.

        It encrypts if the server can, as PyMySQL does; the driver itself does so always or never. It notices if the
        server ends a transaction that was lent to a caller.
        """

        def __init__(self, *, requires_ssl: bool, **options: Any) -> None:
            super().__init__(**options)
            self._requires_ssl = requires_ssl

        async def _get_server_information(self) -> None:
            await super()._get_server_information()
            if not self.server_capabilities & encrypted and not self._requires_ssl:
                self._ssl_context = None
                self._client_flag &= ~encrypted

        async def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
            rows: int = await ask_watched_async(self, lambda: super(Connection, self).query(sql, unbuffered))
            return rows

    return Connection


@dataclass(eq=False)
class AsyncmyConnection:
    """asyncmy in autocommit mode, so that transactions begin where we say."""

    raw: Any
    database: MysqlDatabase
    is_kept: bool = True

    async def begin(self, *, read_only: bool = False) -> None:  # noqa: ARG002 - readers wait for nobody
        await self.raw.begin()

    async def commit(self) -> None:
        await self.raw.commit()

    async def rollback(self) -> None:
        await self.raw.rollback()

    async def close(self) -> None:
        if self.raw._close_reason is not None:  # noqa: SLF001 - only after a statement was cancelled
            self.raw._close_reason = None  # noqa: SLF001
            await self._end_session()
        await self.raw.ensure_closed()

    async def _end_session(self) -> None:
        """Stop a cancelled statement: the server would run it to its end, and keep the locks of its transaction."""
        other = await _open_mysql(self.database)
        try:
            await _first_row_of_mysql(other.raw, f"kill {self.raw.thread_id()}")
        finally:
            await other.close()

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            shut_down(self.raw._transport.get_extra_info("socket").fileno())  # noqa: SLF001 - there is no public way

    def abandon(self) -> None:
        self.abort()
