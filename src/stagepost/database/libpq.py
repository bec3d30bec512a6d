"""Sends our own statements through psycopg's libpq layer, at half the cost of its cursors."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from stagepost.database.statement import Rows

__all__ = ["Session", "keeps_plan", "session_of"]

PREPARE_FROM = 5
"""A statement is prepared when it is sent for the fifth time, as psycopg does."""
MOST_PREPARED = 100
"""The server keeps each prepared statement as long as the session lasts."""
LIVE = 0
"""libpq's status of a connection that is not known to be lost."""
LOOK_SECONDS = 0.1
"""How often the main thread checks for signals while it waits for an answer."""

_JOIN = re.compile(
    r"\b(?:join|using)\b|\bin \(select\b|\bfrom json_|\bfrom \w+\s+where job\.id = |\bselect 1\s+from \w+ as\b"
)
_ONE = re.compile(r"\bid = (?:\$\d+|%\(only\)s)::uuid")


def keeps_plan(sql: str) -> bool:
    """Whether a plan can be kept: not for statements that join tables or read rows from a list.

    The best plan for those depends on the sizes of the tables, and a plan made for small tables would scan them when
    they are large. A statement about a single job always finds it by its id.
    """
    return not _JOIN.search(sql) or bool(_ONE.search(sql))


_sessions: WeakKeyDictionary[Any, Session] = WeakKeyDictionary()


def session_of(raw: Any) -> Session | None:
    """Return the session of one of our own connections that was lent to a caller."""
    return _sessions.get(raw)


class Session:
    """One psycopg connection, used by one thread at a time. Parameters are written `$1`; the server infers types."""

    def __init__(self, raw: Any, *, prepares: bool) -> None:
        _sessions[raw] = self
        self._libpq = raw.pgconn
        self._encoding = raw.info.encoding
        self._prepares = prepares
        self._rows = import_module("psycopg.adapt").Transformer(raw)
        self._answers = import_module("psycopg.generators").execute
        self._wait = import_module("psycopg.waiting").wait
        self._errors = import_module("psycopg.errors")
        self._uses: dict[str, int] = {}
        self._prepared: dict[str, bytes] = {}

    def execute(self, sql: str, parameters: Iterable[Any] | None) -> Rows:
        """Run one statement and fetch all its rows."""
        values = [self._text(value) for value in parameters or ()]
        name = self._prepared.get(sql) or self._prepare(sql)
        answer = self._ask(sql, values) if name is None else self._ask_prepared(name, values)
        if not answer.ntuples:
            return []
        self._rows.set_pgresult(answer)
        rows: Rows = self._rows.load_rows(0, answer.ntuples, tuple)
        return rows

    def command(self, sql: str) -> None:
        """Run statements without parameters and rows."""
        if _may_block():
            self._checked(self._libpq.exec_(sql.encode(self._encoding)))
        else:
            self._libpq.send_query(sql.encode(self._encoding))
            self._answer()

    def _ask(self, sql: str, values: list[bytes | None]) -> Any:
        if _may_block():
            return self._checked(self._libpq.exec_params(sql.encode(self._encoding), values))
        self._libpq.send_query_params(sql.encode(self._encoding), values)
        return self._answer()

    def _ask_prepared(self, name: bytes, values: list[bytes | None]) -> Any:
        if _may_block():
            return self._checked(self._libpq.exec_prepared(name, values))
        self._libpq.send_query_prepared(name, values)
        return self._answer()

    def _prepare(self, sql: str) -> bytes | None:
        uses = self._uses[sql] = self._uses.get(sql, 0) + 1
        if not self._prepares or uses < PREPARE_FROM or len(self._prepared) >= MOST_PREPARED or not keeps_plan(sql):
            return None
        name = b"stagepost_%d" % len(self._prepared)
        self._libpq.send_prepare(name, sql.encode(self._encoding))
        self._answer()
        self._prepared[sql] = name
        return name

    def _answer(self) -> Any:
        """Wait for the answer, letting signals interrupt; of several statements, return the last answer."""
        answers: Sequence[Any] = self._wait(self._answers(self._libpq), self._libpq.socket, LOOK_SECONDS)
        for answer in answers:
            self._checked(answer)
        return answers[-1]

    def _checked(self, answer: Any) -> Any:
        if answer.error_message:
            error = self._errors.error_from_result(answer, encoding=self._encoding)
            if self._libpq.status != LIVE and error.sqlstate is None:  # no message from the server: it is gone
                raise self._errors.OperationalError(str(error)) from error
            raise error
        return answer

    def _text(self, value: Any) -> bytes | None:
        if value is None:
            return None
        text: bytes = (value if isinstance(value, str) else _number(value)).encode(self._encoding)
        if b"\0" in text:  # libpq would cut the text there
            raise self._errors.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return text


def _may_block() -> bool:
    """Whether libpq may wait, which costs less: only the main thread must react to signals."""
    return threading.current_thread() is not threading.main_thread()


def _number(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"parameters must be text, numbers or None, not {type(value).__name__}")
