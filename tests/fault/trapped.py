"""Connections with traps: something happens before or after the n-th call of a kind. Plain composition."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import msgspec

from stagepost.client import App
from stagepost.database import Store, libpq
from stagepost.database.connection import Connection, Database, PostgresConnection, database_at
from stagepost.database.dialect import Dialect
from stagepost.database.failures import Address
from stagepost.database.statement import Row, Rows

KILL_POINT = "FAULT_KILL_POINT"
"""The variable that tells a worker where to kill itself."""
HANDLER = "handler"
"""Stands for a transaction of the handler's own, whose statements go past our connection."""


class Step(StrEnum):
    CONNECT = "connect"
    BEGIN = "begin"
    EXECUTE = "execute"
    COMMIT = "commit"
    ROLLBACK = "rollback"


Around = Callable[[Step], contextlib.AbstractContextManager[None]]


class Call(NamedTuple):
    """One call of a driver; `statements` names what its transaction ran so far, this one included."""

    step: Step
    statements: tuple[str, ...]
    is_alone: bool = False
    """A statement without a transaction around it: what it does, it also commits."""


class Trap(Protocol):
    """Surrounds every call."""

    @property
    def sees_handlers(self) -> bool:
        """Whether the statements of handlers' own transactions are calls, too."""

    def around(self, call: Call, connection: Any) -> contextlib.AbstractContextManager[None]: ...


class TrappedDatabase:
    """A database whose connections have a trap."""

    def __init__(self, database: Database, trap: Trap) -> None:
        self._database = database
        self._trap = trap
        self.dialect = database.dialect
        self.style = database.style
        self.shares_one_connection = database.shares_one_connection

    @property
    def is_memory(self) -> bool:
        return self._database.is_memory

    @property
    def address(self) -> Address:
        return self._database.address

    def connect(self) -> Connection:
        with contextlib.ExitStack() as stack:
            with self._trap.around(Call(Step.CONNECT, ()), None):
                connection = self._database.connect()
                stack.callback(connection.close)
            stack.pop_all()
            return TrappedConnection(connection, self._trap, self.dialect)


class TrappedConnection:
    """A connection that remembers which statements its transaction ran."""

    def __init__(self, connection: Connection, trap: Trap, dialect: Dialect) -> None:
        self._connection = connection
        self._trap = trap
        self._dialect = dialect
        self._statements: tuple[str, ...] = ()
        self._is_begun = False
        self.is_pooled = connection.is_pooled
        self.most_bytes = connection.most_bytes
        self.raw = TrappedRaw(connection, self._around) if trap.sees_handlers else connection.raw

    def execute(self, sql: str, parameters: Any) -> Rows:
        self._remember(sql)
        with self._around(Step.EXECUTE):
            return self._connection.execute(sql, parameters)

    def load(self, sql: str, rows: Iterable[Row]) -> int:
        self._remember(sql)
        with self._around(Step.EXECUTE):
            return self._connection.load(sql, rows)

    def _remember(self, sql: str) -> None:
        before = self._statements if self._is_begun else ()
        self._statements = (*before, name_of(sql, self._dialect))

    def begin(self, **options: Any) -> None:
        self._statements, self._is_begun = (), True
        with self._around(Step.BEGIN):
            self._connection.begin(**options)

    def commit(self) -> None:
        self._is_begun = False
        with self._around(Step.COMMIT):
            self._connection.commit()

    def rollback(self) -> None:
        self._is_begun = False
        with self._around(Step.ROLLBACK):
            self._connection.rollback()

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._connection.abort()

    def _around(self, step: Step) -> contextlib.AbstractContextManager[None]:
        statements = self._statements if self._statements or step is not Step.COMMIT else (HANDLER,)
        is_alone = step is Step.EXECUTE and not self._is_begun
        return self._trap.around(Call(step, statements, is_alone), self._connection)


class TrappedRaw:
    """A driver's connection as handlers get it; it passes for one, because Stagepost goes by the class's name."""

    def __new__(cls, connection: Connection, _around: Around) -> Any:
        # Its own class, not one that we made of it.
        driver = next(kind for kind in type(connection.raw).__mro__ if not kind.__module__.startswith("stagepost"))
        return object.__new__(type(driver.__name__, (cls,), {"__module__": driver.__module__}))

    def __init__(self, connection: Connection, around: Around) -> None:
        self._raw = connection.raw
        self._around = around
        if isinstance(connection, PostgresConnection) and (session := libpq.session_of(self._raw)):
            libpq._sessions[self] = TrappedSession(session, around)  # type: ignore[assignment]

    def execute(self, *arguments: Any) -> Any:
        with self._around(Step.EXECUTE):
            return self._raw.execute(*arguments)

    def cursor(self, *arguments: Any, **options: Any) -> TrappedCursor:
        return TrappedCursor(self._raw.cursor(*arguments, **options), self._around)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


class TrappedSession:
    """What Stagepost itself speaks through on a connection that it lent to a handler."""

    def __init__(self, session: libpq.Session, around: Around) -> None:
        self._session = session
        self._around = around

    def execute(self, sql: str, parameters: Any) -> Rows:
        with self._around(Step.EXECUTE):
            return self._session.execute(sql, parameters)


class TrappedCursor:
    """A driver's cursor whose statements are calls."""

    def __init__(self, cursor: Any, around: Around) -> None:
        self._cursor = cursor
        self._around = around

    def execute(self, *arguments: Any, **options: Any) -> Any:
        try:
            with self._around(Step.EXECUTE):
                return self._cursor.execute(*arguments, **options)
        except BaseException:
            self._cursor.close()  # a statement that failed holds nothing open
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def name_of(sql: str, dialect: Dialect) -> str:
    """Which `.sql` file a text that reaches the driver is from; the dialect keeps what it made of them."""
    for script in list(dialect._scripts.values()):
        if any(text.sql == sql for text in script.texts):
            return script.name
    return "other"


class Moment(StrEnum):
    BEFORE = "before"
    AFTER = "after"


class KillPoint(msgspec.Struct, frozen=True):
    """Where a process kills itself: at the n-th `step` of a transaction that ran `statement`."""

    statement: str
    step: Step
    moment: Moment
    nth: int = 1


@dataclass
class Suicide:
    """Kills this process, as `kill -9` would, at its point."""

    point: KillPoint
    seen: int = field(default=0)
    sees_handlers: ClassVar[bool] = False

    @contextlib.contextmanager
    def around(self, call: Call, _connection: Any) -> Iterator[None]:
        due = False
        step = Step.COMMIT if call.is_alone else call.step
        if step is self.point.step and self.point.statement in call.statements:
            self.seen += 1
            due = self.seen == self.point.nth
        if due and self.point.moment is Moment.BEFORE:
            os.kill(os.getpid(), signal.SIGKILL)
        yield
        if due:
            os.kill(os.getpid(), signal.SIGKILL)


class NoTrap:
    """Lets every call pass."""

    sees_handlers = False

    def around(self, _call: Call, _connection: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class TrappedApp(App):
    """An app all of whose stores have the same trap."""

    trap: Trap = NoTrap()

    def open_store(self, *, pool_size: int | None = None, for_handlers: bool = False) -> Store:
        size = self.settings.pool_size if pool_size is None else pool_size
        database = TrappedDatabase(database_at(self.settings.database_url, for_handlers=for_handlers), self.trap)
        return Store(database, clock=self.clock, pool_size=size)
