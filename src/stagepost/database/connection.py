"""Our own connections: opened with deadlines, used with plain SQL, and closed when their state is in doubt."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

from stagepost.config.urls import masked, split_url
from stagepost.database.copying import pieces_of
from stagepost.database.deadline import Deadlines
from stagepost.database.dialect import MYSQL, POSTGRES, Dialect, ParameterStyle
from stagepost.database.failures import Address, Translated, connect_failure
from stagepost.database.lent import ask_watched
from stagepost.database.libpq import Session
from stagepost.database.opening import closed_on_failure, shut_down
from stagepost.database.session import (
    CALL_SECONDS,
    CONNECT_SECONDS,
    configure,
    driver,
    mysql_configuration,
    postgres_begin,
    postgres_configuration,
    postgres_options,
)
from stagepost.database.sqlite import SqliteDatabase, sqlite_path
from stagepost.database.statement import Row, Rows
from stagepost.errors import ConfigurationError, StoreError, ValueTooLarge
from stagepost.model.groups import groups_of

__all__ = ["Connection", "Database", "database_at"]

MOST_LOADED = 10_000
PAYLOAD = 1
"""The position of the longest value in a row for `load`."""
FAILED = 3
"""libpq's status of a transaction in which a statement has failed."""


class Connection(Protocol):
    """The interface that we give to every driver's connection."""

    raw: Any
    """The driver's connection object, for the statements of callers."""
    is_pooled: bool
    """A pooler may give every transaction another session, so each transaction must set the limits itself."""
    most_bytes: int | None
    """The longest statement that the server accepts, if it has a limit; a longer one raises ValueTooLarge."""

    def execute(self, sql: str, parameters: Any) -> Rows:
        """Run one statement and fetch all its rows."""

    def load(self, sql: str, rows: Iterable[Row]) -> int:
        """Insert many rows at once, all or none; returns how many."""

    def begin(self, *, read_only: bool = False) -> None:
        """Start a transaction; one that writes takes SQLite's write lock now rather than failing later."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None:
        """Abort the call that another thread is waiting for; the connection cannot be used afterwards."""


class Database(Protocol):
    """Opens connections to one database."""

    dialect: Dialect
    style: ParameterStyle
    shares_one_connection: bool
    """All operations of this process use one connection, one after another."""

    @property
    def address(self) -> Address:
        """Where it is, for messages."""

    @property
    def is_memory(self) -> bool:
        """Whether the database lives in its only connection: a second one would see another, empty database."""

    def connect(self) -> Connection: ...


def database_at(url: str, *, for_handlers: bool = False, folder: Path | None = None) -> Database:
    """Choose the database by URL: sqlite, postgresql, mysql or mariadb.

    Pass `for_handlers` if handlers run statements of their own on its connections. A relative SQLite path starts in
    `folder`, by default the current directory; it does not follow a handler that changes the directory later.
    """
    scheme = url.partition(":")[0].partition("+")[0]
    match scheme:
        case "sqlite":
            return SqliteDatabase(sqlite_path(url, folder or Path.cwd()))
        case "postgresql" | "postgres":
            split_url("database URL", url, for_libpq=True)
            return PostgresDatabase("postgresql" + url[url.index(":") :], for_handlers=for_handlers)
        case "mysql" | "mariadb":
            return MysqlDatabase.from_url(url)
        case _:
            kind = f"unknown kind {scheme!r}" if "://" in url else "it names no kind of database"
            raise ConfigurationError(
                f"database URL {masked(url)!r}: {kind}. Use sqlite:///file.db, postgresql://… or mysql://…"
            )


def connecting(database: Database) -> Translated:
    """Turn what a driver raises while it connects into our own errors."""
    return Translated(partial(connect_failure, dialect=database.dialect, address=database.address))


@dataclass
class PostgresDatabase:
    """PostgreSQL through psycopg 3."""

    url: str = field(repr=False)
    for_handlers: bool = False
    """Handlers run their own statements on its connections, so planner settings stay as they are."""
    dialect: Dialect = POSTGRES
    style: ParameterStyle = ParameterStyle.DOLLAR
    shares_one_connection: bool = False
    is_memory: bool = False
    deadlines: Deadlines = field(default_factory=Deadlines, repr=False, compare=False)
    """Limits the statements that set a new session up."""

    @property
    def address(self) -> Address:
        return Address("PostgreSQL", self.url)

    def connect(self) -> PostgresConnection:
        psycopg = driver("psycopg", extra="postgres")
        with connecting(self):
            raw = psycopg.connect(self.url, autocommit=True, **postgres_options(self.url))
            set_up = self.deadlines.limit(CONNECT_SECONDS, partial(shut_down, raw.fileno()))
            with closed_on_failure(raw), set_up:
                configuration = postgres_configuration(raw.info.backend_pid, for_handlers=self.for_handlers)
                is_pooled = configure(configuration, lambda sql: _first_row(raw.execute(sql)))
                prepare_for_use(raw, is_pooled=is_pooled)
        return PostgresConnection(raw, is_pooled=is_pooled)


def prepare_for_use(raw: Any, *, is_pooled: bool) -> None:
    """Set what psycopg itself keeps for a connection, blocking or asynchronous."""
    if is_pooled:
        # What was prepared under the same name in another session would be run instead of ours.
        raw.prepare_threshold = None
    text = driver("psycopg.types.string", extra="postgres").TextLoader
    for name in ("uuid", "json"):  # taken as they are: ids are strings here, payloads are decoded by msgspec
        raw.adapters.register_loader(name, text)


def require_unbroken(raw: Any) -> None:
    """Raise an error where PostgreSQL would take a commit for a rollback, and report success."""
    if raw.pgconn.transaction_status == FAILED:
        raise StoreError(
            "the transaction was rolled back, not committed: one of its statements failed, and its error was caught. "
            "Let the error leave the block, or run the statement in a savepoint: `with tx.transaction(): …`."
        )


@dataclass
class PostgresConnection:
    """A psycopg connection in autocommit mode, so that transactions start only where `begin` is called."""

    raw: Any
    is_pooled: bool = False
    most_bytes: int | None = None

    def __post_init__(self) -> None:
        self._session = Session(self.raw, prepares=not self.is_pooled)

    def execute(self, sql: str, parameters: Any) -> Rows:
        return self._session.execute(sql, parameters)

    def load(self, sql: str, rows: Iterable[Row]) -> int:
        with self.raw.cursor() as cursor:
            with cursor.copy(sql) as copy:
                for piece in pieces_of(rows):
                    copy.write(piece)
            return int(cursor.rowcount)

    def begin(self, *, read_only: bool = False) -> None:  # noqa: ARG002 - readers take no locks
        self._session.command(postgres_begin(is_pooled=self.is_pooled))

    def commit(self) -> None:
        require_unbroken(self.raw)
        self._session.command("commit")

    def rollback(self) -> None:
        self._session.command("rollback")

    def close(self) -> None:
        self.raw.close()

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            shut_down(self.raw.fileno())


PACKET_HEAD_BYTES = 1024
"""More than the protocol sends before a statement."""
FIXED_OPTIONS = {"charset": "utf8mb4", "autocommit": "1"}
"""URL options that may be given, but only with these values."""


@dataclass
class MysqlDatabase:
    """MySQL or MariaDB through PyMySQL."""

    url: str = field(repr=False)
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    dialect: Dialect = MYSQL
    style: ParameterStyle = ParameterStyle.PYFORMAT
    shares_one_connection: bool = False
    is_memory: bool = False

    @classmethod
    def from_url(cls, url: str) -> MysqlDatabase:
        parts = split_url("database URL", url)
        options: dict[str, Any] = {
            "host": parts.hostname or "127.0.0.1",
            "port": parts.port or 3306,
            "user": unquote(parts.username or "root"),
            "password": unquote(parts.password or ""),
            "database": unquote(parts.path.strip("/")),
        }
        for name, value in parse_qsl(parts.query):
            if FIXED_OPTIONS.get(name, value) != value:
                raise ConfigurationError(
                    f"database URL {masked(url)!r}: {name}={value} cannot work, Stagepost needs {FIXED_OPTIONS[name]}. "
                    f"Leave it out."
                )
            options[name] = int(value) if value.isdigit() else value
        options |= {"charset": FIXED_OPTIONS["charset"], "autocommit": True}
        if not options["database"]:
            raise ConfigurationError(f"database URL {masked(url)!r} names no database: add it as the path.")
        return cls(url, options)

    @property
    def address(self) -> Address:
        return Address("MySQL/MariaDB", self.url)

    def unconnected(self) -> Any:
        """Make a connection that is not opened, to read off how PyMySQL understands the options."""
        return _mysql_connection()(**self.options, defer_connect=True)

    def connect(self) -> MysqlConnection:
        # PyMySQL limits only the opening of the socket by `connect_timeout`; the handshake counts as reading.
        defaults = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), CONNECT_SECONDS)
        with connecting(self):
            raw = _mysql_connection()(**{**defaults, **self.options})
            with closed_on_failure(raw), raw.cursor() as cursor:

                def execute(sql: str) -> Any:
                    cursor.execute(sql)
                    return _first_row(cursor)

                raw.most_bytes = configure(mysql_configuration(raw.get_server_info()), execute)
            raw._read_timeout = self.options.get("read_timeout", CALL_SECONDS)  # noqa: SLF001 - there is no other way
            raw._write_timeout = self.options.get("write_timeout", CALL_SECONDS)  # noqa: SLF001
        return MysqlConnection(raw, most_bytes=raw.most_bytes)


@cache
def _mysql_connection() -> type[Any]:
    base: Any = driver("pymysql.connections", extra="mysql").Connection
    no_backslashes = driver("pymysql.constants.SERVER_STATUS", extra="mysql").SERVER_STATUS_NO_BACKSLASH_ESCAPES

    class Connection(base):  # type: ignore[misc]
        """Differs from PyMySQL's class in four ways.

        It does not read the system's certificates if none is checked: that took longer than the rest of connecting.
        It escapes only backslashes and single quotes in text, not the double quotes of JSON. It refuses a statement
        that is longer than the server accepts: the server would close the connection, which looks like an outage. It
        notices if the server ends a transaction that was lent to a caller.
        """

        most_bytes: int | None = None

        def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
            text = sql.encode(self.encoding) if isinstance(sql, str) else sql
            if self.most_bytes is not None and len(text) + PACKET_HEAD_BYTES > self.most_bytes:
                raise ValueTooLarge(len(text), self.most_bytes)
            rows: int = ask_watched(self, lambda: super(Connection, self).query(text, unbuffered))
            return rows

        def escape(self, obj: Any, mapping: Any = None) -> str:
            if type(obj) is str and not self.server_status & no_backslashes:
                return "'" + obj.replace("\\", "\\\\").replace("'", "\\'") + "'"
            if type(obj) is int:
                return str(obj)
            if obj is None:
                return "NULL"
            escaped: str = super().escape(obj, mapping)
            return escaped

        def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
            if sslp:
                asked: ssl.SSLContext = super()._create_ssl_ctx(sslp)
                return asked
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return context

    return Connection


@dataclass
class MysqlConnection:
    """A PyMySQL connection in autocommit mode, so that transactions start only where `begin` is called."""

    raw: Any
    is_pooled: bool = False
    most_bytes: int | None = None

    def execute(self, sql: str, parameters: Any) -> Rows:
        with self.raw.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def load(self, sql: str, rows: Iterable[Row]) -> int:
        put = 0
        with self.raw.cursor() as cursor:
            if self.most_bytes is not None:
                cursor.max_stmt_length = min(cursor.max_stmt_length, self.most_bytes - PACKET_HEAD_BYTES)
            whole = ((*own, *shared) for own, shared in rows)
            for group in groups_of(whole, size=lambda row: len(row[PAYLOAD]), most=MOST_LOADED):
                put += int(cursor.executemany(sql, group) or 0)
        return put

    def begin(self, *, read_only: bool = False) -> None:  # noqa: ARG002 - readers take no locks
        self.raw.query("begin")

    def commit(self) -> None:
        self.raw.query("commit")

    def rollback(self) -> None:
        self.raw.query("rollback")

    def close(self) -> None:
        self.raw.close()

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            shut_down(self.raw._sock.fileno())  # noqa: SLF001 - PyMySQL has no public way


def _first_row(cursor: Any) -> Any:
    return cursor.fetchone() if cursor.description else None
