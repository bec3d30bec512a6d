"""Raises an error at the k-th call of a driver, before or after the call took effect, as that driver would."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import psycopg
import pymysql

from stagepost.errors import StoreUnavailable
from tests.fault.trapped import Call, Moment, Step


class Blow(StrEnum):
    """What goes wrong."""

    LOST = "connection lost"
    CONFLICT = "conflict"
    TIMEOUT = "timeout"
    DEATH = "process killed"


class Killed(BaseException):
    """Stands for `kill -9`: from here on nothing this process does reaches the database."""


class Injection(NamedTuple):
    at: int
    moment: Moment
    blow: Blow

    def __str__(self) -> str:
        return f"{self.blow} {self.moment} call {self.at}"


@dataclass
class Injector:
    """Counts all calls of an app and strikes at one of them; after a death, at all that follow."""

    injection: Injection | None
    dialect: str
    calls: list[Call] = field(default_factory=list)
    has_struck: bool = False
    is_dead: bool = False
    sees_handlers: bool = True
    connections: list[Any] = field(default_factory=list)

    @contextlib.contextmanager
    def around(self, call: Call, connection: Any) -> Iterator[None]:
        if self.is_dead:
            raise Killed
        self.calls.append(call)
        if connection is not None and connection not in self.connections:
            self.connections.append(connection)
        due = self.injection is not None and len(self.calls) == self.injection.at
        if due and self.injection is not None and self.injection.moment is Moment.BEFORE:
            self._strike(call, connection, self.injection.blow)
        yield
        if due and self.injection is not None:
            self._strike(call, connection, self.injection.blow)

    def _strike(self, call: Call, connection: Any, blow: Blow) -> None:
        self.has_struck = True
        if blow is Blow.DEATH:
            self.is_dead = True
            for opened in self.connections:
                sever(self.dialect, opened.raw)
            raise Killed
        if call.step is Step.CONNECT:
            raise StoreUnavailable("the database cannot be reached (injected)")
        ends_connection = blow is Blow.LOST or call.step in {Step.COMMIT, Step.ROLLBACK}
        if ends_connection and not (blow is Blow.CONFLICT and call.step is Step.COMMIT):
            sever(self.dialect, connection.raw)
            raise lost(self.dialect)
        if blow is Blow.CONFLICT:
            # A conflict at commit means that nothing was committed, whenever we look.
            undo(self.dialect, connection.raw)
            raise conflict(self.dialect)
        raise timeout(self.dialect)


def sever(dialect: str, raw: Any) -> None:
    """End a connection as a broken network does: the database rolls back, the driver is not told."""
    with contextlib.suppress(Exception):
        if dialect == "sqlite" and raw.in_transaction:
            raw.execute("rollback")  # close() alone leaves it open while a cursor lives, in a traceback say
        raw._force_close() if dialect == "mysql" else raw.close()


def undo(dialect: str, raw: Any) -> None:
    """Roll back in the database, as a deadlock's victim is."""
    with contextlib.suppress(sqlite3.Error, psycopg.Error, pymysql.MySQLError):
        if dialect == "mysql":
            raw.query("rollback")
        elif dialect == "sqlite" and raw.in_transaction:
            raw.execute("rollback")
    if dialect == "postgres" and not raw.closed:
        with contextlib.suppress(psycopg.Error):
            raw.execute("select 1 / 0")  # the server refuses all but a rollback from here


def lost(dialect: str) -> Exception:
    match dialect:
        case "sqlite":
            return _sqlite_error("disk I/O error (injected)", "SQLITE_IOERR")
        case "postgres":
            return psycopg.OperationalError("server closed the connection unexpectedly (injected)")
        case _:
            return pymysql.err.OperationalError(2013, "Lost connection during query (injected)")


def conflict(dialect: str) -> Exception:
    match dialect:
        case "sqlite":
            return _sqlite_error("database is locked (injected)", "SQLITE_BUSY")
        case "postgres":
            return psycopg.errors.DeadlockDetected("deadlock detected (injected)")
        case _:
            return pymysql.err.OperationalError(1213, "Deadlock found (injected)")


def timeout(dialect: str) -> Exception:
    match dialect:
        case "sqlite":
            return _sqlite_error("interrupted (injected)", "SQLITE_INTERRUPT")
        case "postgres":
            return psycopg.errors.QueryCanceled("canceling statement due to statement timeout (injected)")
        case _:
            return pymysql.err.OperationalError(1205, "Lock wait timeout exceeded (injected)")


def _sqlite_error(message: str, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorname = name
    return error
