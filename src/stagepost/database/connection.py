"""Connections of our own: opened with deadlines, driven with plain SQL, thrown away when in doubt."""

from __future__ import annotations

import contextlib
import sqlite3
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from stagepost.clock import monotonic
from stagepost.config.urls import masked
from stagepost.database.copying import pieces_of
from stagepost.database.deadline import Deadlines
from stagepost.database.dialect import MYSQL, POSTGRES, SQLITE, Dialect, ParameterStyle
from stagepost.database.libpq import Session
from stagepost.database.opening import closed_on_failure, shut_down
from stagepost.database.statement import Row, Rows
from stagepost.errors import ConfigurationError, StoreUnavailable, ValueTooLarge
from stagepost.model.groups import groups_of

__all__ = ["Connection", "Database", "database_at"]

CONNECT_SECONDS = 10
MOST_LOADED = 10_000
PAYLOAD = 1
"""The place of the longest value in a row that is loaded."""
CALL_SECONDS = 60
"""How long a statement of a handler's own may take; ours have a deadline of their own."""
LOCK_SECONDS = 10
REFUSED_SECONDS = 0.01
"""How long to wait before a SQLite file is opened again that others are opening just now."""
IDLE_SECONDS = 60
"""How long a process that is stopped in a transaction keeps its locks."""
POSTGRES_LIMITS = (
    f"set {{scope}} lock_timeout = '{LOCK_SECONDS}s'; "
    f"set {{scope}} idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
)
POSTGRES_PLANS = "set session enable_seqscan = off; set session jit = off"
"""Our statements find rows by an index, whatever the size of their tables. A plan that reads a table whole while it is
small would be kept, and still be used when a million jobs are in it. Where there is no index, PostgreSQL takes reading
the table for so costly that it would compile the statement first, each time."""


class Connection(Protocol):
    """A driver's connection, brought to one shape."""

    raw: Any
    """What the driver calls a connection; callers' own statements go through it."""
    is_pooled: bool
    """Every transaction may be in another session: its limits must be set in each, so there must be one."""
    most_bytes: int | None
    """How long a statement may be, where the server has a limit; a longer one is a ValueTooLarge."""

    def execute(self, sql: str, parameters: Any) -> Rows:
        """Run one statement and fetch all it returns."""

    def load(self, sql: str, rows: Iterable[Row]) -> int:
        """Put many rows at once, all or none; returns how many."""

    def begin(self, *, read_only: bool = False) -> None:
        """Open a transaction; one that writes takes its locks early rather than failing late."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None:
        """Break off whatever another thread is waiting for; the connection is useless afterwards."""


class Database(Protocol):
    """Where connections come from."""

    dialect: Dialect
    style: ParameterStyle
    shares_one_connection: bool
    """All work of this process goes through one connection, one after the other."""

    @property
    def is_memory(self) -> bool:
        """It lives in its only connection: another one would see another, empty database."""

    def connect(self) -> Connection: ...


def database_at(url: str, *, for_handlers: bool = False, folder: Path | None = None) -> Database:
    """Choose the database by URL: sqlite, postgresql, mysql or mariadb; `for_handlers` runs their statements, too.

    A relative SQLite path begins in `folder`, or else where the process is now; not where a handler goes later.
    """
    scheme = urlsplit(url).scheme.partition("+")[0]
    match scheme:
        case "sqlite":
            return SqliteDatabase(_sqlite_path(url, folder or Path.cwd()))
        case "postgresql" | "postgres":
            return PostgresDatabase("postgresql" + url[url.index(":") :], for_handlers=for_handlers)
        case "mysql" | "mariadb":
            return MysqlDatabase.from_url(url)
        case _:
            raise ConfigurationError(
                f"database URL {masked(url)!r}: unknown kind {scheme!r}. "
                f"Use sqlite:///file.db, postgresql://… or mysql://…"
            )


@dataclass
class SqliteDatabase:
    """A file, or memory that lives as long as its only connection."""

    path: str
    dialect: Dialect = SQLITE
    style: ParameterStyle = ParameterStyle.NAMED
    shares_one_connection: bool = True

    @property
    def is_memory(self) -> bool:
        return self.path == ":memory:"

    def connect(self) -> SqliteConnection:
        try:
            raw = sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
            with closed_on_failure(raw):
                _write_ahead(raw)
                raw.execute("pragma synchronous = full")
        except sqlite3.OperationalError as error:
            advice = "Another process has it locked." if _is_busy(error) else "Is its folder there, and writable?"
            raise StoreUnavailable(f"SQLite file {self.path!r} cannot be opened: {error}. {advice}") from error
        return SqliteConnection(raw)


def _write_ahead(raw: sqlite3.Connection) -> None:
    """Let readers and a writer work at once; while others open a new file, too, SQLite may refuse without waiting."""
    deadline = monotonic() + LOCK_SECONDS
    while True:
        try:
            raw.execute("pragma journal_mode = wal").fetchall()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or monotonic() > deadline:
                raise
            time.sleep(REFUSED_SECONDS)
        else:
            return


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


@dataclass
class SqliteConnection:
    """SQLite in autocommit mode, so that transactions begin where we say."""

    raw: sqlite3.Connection
    is_pooled: bool = False
    most_bytes: int | None = None

    def execute(self, sql: str, parameters: Any) -> Rows:
        return self.raw.execute(sql, parameters).fetchall()

    def load(self, sql: str, rows: Iterable[Row]) -> int:
        return self.raw.executemany(sql, ((*own, *shared) for own, shared in rows)).rowcount

    def begin(self, *, read_only: bool = False) -> None:
        # Immediate: a transaction that reads first and writes later fails instead of waiting.
        self.raw.execute("begin" if read_only else "begin immediate")

    def commit(self) -> None:
        self.raw.execute("commit")

    def rollback(self) -> None:
        if self.raw.in_transaction:
            self.raw.execute("rollback")

    def close(self) -> None:
        self.raw.close()

    def abort(self) -> None:
        self.raw.interrupt()


@dataclass
class PostgresDatabase:
    """PostgreSQL through psycopg 3."""

    url: str
    for_handlers: bool = False
    """It runs statements that are not ours, too: how they are planned is not ours to say."""
    dialect: Dialect = POSTGRES
    style: ParameterStyle = ParameterStyle.DOLLAR
    shares_one_connection: bool = False
    is_memory: bool = False
    deadlines: Deadlines = field(default_factory=Deadlines, repr=False, compare=False)
    """Limits the statements that set a new session up."""

    def connect(self) -> PostgresConnection:
        psycopg = _driver("psycopg", extra="postgres")
        try:
            raw = psycopg.connect(
                self.url,
                autocommit=True,
                **_unless_in_url(
                    self.url,
                    connect_timeout=CONNECT_SECONDS,
                    keepalives_idle=10,
                    keepalives_interval=5,
                    keepalives_count=2,
                    tcp_user_timeout=15_000,
                    application_name="stagepost",
                ),
            )
            set_up = self.deadlines.limit(CONNECT_SECONDS, partial(shut_down, raw.fileno()))
            with closed_on_failure(raw), set_up:
                [session] = raw.execute("select pg_backend_pid()").fetchone()
                is_pooled = session != raw.info.backend_pid
                if is_pooled:
                    # A pooler answers in the server's place. Its sessions may change with every transaction: what was
                    # prepared under the same name in another one would be run instead of ours, and settings of ours
                    # would stay behind for others.
                    raw.prepare_threshold = None
                else:
                    raw.execute(POSTGRES_LIMITS.format(scope="session"))
                    raw.execute("set session characteristics as transaction isolation level read committed")
                    if not self.for_handlers:
                        raw.execute(POSTGRES_PLANS)
        except psycopg.Error as error:
            raise StoreUnavailable(f"PostgreSQL at {masked(self.url)} cannot be reached: {error}") from error
        text = _driver("psycopg.types.string", extra="postgres").TextLoader
        for name in ("uuid", "json"):  # taken as they are: ids are strings here, payloads are decoded by msgspec
            raw.adapters.register_loader(name, text)
        return PostgresConnection(raw, is_pooled=is_pooled)


@dataclass
class PostgresConnection:
    """psycopg in autocommit mode, so that transactions begin where we say."""

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

    def begin(self, *, read_only: bool = False) -> None:  # noqa: ARG002 - readers wait for nobody
        limits = POSTGRES_LIMITS.format(scope="local") if self.is_pooled else ""
        self._session.command(f"begin isolation level read committed; {limits}")

    def commit(self) -> None:
        self._session.command("commit")

    def rollback(self) -> None:
        self._session.command("rollback")

    def close(self) -> None:
        self.raw.close()

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            shut_down(self.raw.fileno())


PACKET_HEAD_BYTES = 1024
"""More than goes ahead of a statement on the wire."""
FIXED_OPTIONS = {"charset": "utf8mb4", "autocommit": "1"}
"""Options of a URL that may be given, but only so."""


@dataclass
class MysqlDatabase:
    """MySQL or MariaDB through PyMySQL."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)
    dialect: Dialect = MYSQL
    style: ParameterStyle = ParameterStyle.PYFORMAT
    shares_one_connection: bool = False
    is_memory: bool = False

    @classmethod
    def from_url(cls, url: str) -> MysqlDatabase:
        parts = urlsplit(url)
        options: dict[str, Any] = {
            "host": parts.hostname or "127.0.0.1",
            "port": parts.port or 3306,
            "user": unquote(parts.username or "root"),
            "password": unquote(parts.password or ""),
            "database": parts.path.strip("/"),
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

    def connect(self) -> MysqlConnection:
        pymysql = _driver("pymysql", extra="mysql")
        # For the driver a connection is made once the socket is; what follows goes by the time for reading.
        defaults = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), CONNECT_SECONDS)
        try:
            raw = _mysql_connection()(**{**defaults, **self.options})
            with closed_on_failure(raw), raw.cursor() as cursor:
                cursor.execute(f"set session innodb_lock_wait_timeout = {LOCK_SECONDS}, sql_mode = 'STRICT_ALL_TABLES'")
                cursor.execute("set session transaction isolation level read committed")
                if "mariadb" in raw.get_server_info().lower():  # MySQL has no such limit
                    cursor.execute(f"set session idle_transaction_timeout = {IDLE_SECONDS}")
                cursor.execute(f"select {MYSQL.longest_statement}")  # of this session: it stays as it is now
                [(raw.most_bytes,)] = cursor.fetchall()
            raw._read_timeout = self.options.get("read_timeout", CALL_SECONDS)  # noqa: SLF001 - there is no other way
            raw._write_timeout = self.options.get("write_timeout", CALL_SECONDS)  # noqa: SLF001
        except pymysql.Error as error:
            raise StoreUnavailable(f"MySQL/MariaDB at {masked(self.url)} cannot be reached: {error}") from error
        return MysqlConnection(raw, most_bytes=raw.most_bytes)


@cache
def _mysql_connection() -> type[Any]:
    base: Any = _driver("pymysql.connections", extra="mysql").Connection
    no_backslashes = _driver("pymysql.constants.SERVER_STATUS", extra="mysql").SERVER_STATUS_NO_BACKSLASH_ESCAPES

    class Connection(base):  # type: ignore[misc]
        """Reads none of the system's certificates to encrypt without checking any: that took longer than the rest.

        Writes backslashes in text only where they must be, which is not before the double quotes of JSON. Sends no
        statement that is longer than the server takes, which would close the connection, as an outage does.
        """

        most_bytes: int | None = None

        def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
            text = sql.encode(self.encoding) if isinstance(sql, str) else sql
            if self.most_bytes is not None and len(text) + PACKET_HEAD_BYTES > self.most_bytes:
                raise ValueTooLarge(len(text), self.most_bytes)
            rows: int = super().query(text, unbuffered)
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
    """PyMySQL in autocommit mode, so that transactions begin where we say."""

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

    def begin(self, *, read_only: bool = False) -> None:  # noqa: ARG002 - readers wait for nobody
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


def _sqlite_path(url: str, folder: Path) -> str:
    rest = url.partition("://")[2]
    path = unquote(rest.partition("?")[0])
    if path in {"", "/", "/:memory:", ":memory:"}:
        return ":memory:"
    if not path.startswith("/"):
        raise ConfigurationError(
            f"database URL {url!r}: write sqlite:///file.db for a file here, sqlite:////folder/file.db from the root."
        )
    return str(folder / path[1:])


def _driver(name: str, *, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigurationError(f"the driver {name} is not installed: pip install 'stagepost[{extra}]'") from error


def _unless_in_url(url: str, **defaults: Any) -> dict[str, Any]:
    given = dict(parse_qsl(urlsplit(url).query))
    return {name: value for name, value in defaults.items() if name not in given}
