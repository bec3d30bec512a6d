"""Sends statements through psycopg's layer above libpq: half of what its cursors cost, where they are our own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from stagepost.store.statement import Rows

__all__ = ["Session"]

PREPARE_FROM = 5
"""A statement is prepared when it is sent for the fifth time, as the driver would."""
MOST_PREPARED = 100
"""Each is kept by the server for as long as the session lasts."""
LOOK_SECONDS = 0.1
"""How often one who waits for an answer looks whether the program was interrupted."""


class Session:
    """One psycopg connection, which a single thread uses at a time. Parameters are `$1`, of the server's types."""

    def __init__(self, raw: Any, *, prepares: bool) -> None:
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
        """Run one statement and fetch all it returns."""
        values = [self._text(value) for value in parameters or ()]
        name = self._prepared.get(sql) or self._prepare(sql)
        if name is None:
            self._libpq.send_query_params(sql.encode(self._encoding), values)
        else:
            self._libpq.send_query_prepared(name, values)
        [answer] = self._answer()
        if not answer.ntuples:
            return []
        self._rows.set_pgresult(answer)
        rows: Rows = self._rows.load_rows(0, answer.ntuples, tuple)
        return rows

    def command(self, sql: str) -> None:
        """Run statements that take and return nothing."""
        self._libpq.send_query(sql.encode(self._encoding))
        self._answer()

    def _prepare(self, sql: str) -> bytes | None:
        uses = self._uses[sql] = self._uses.get(sql, 0) + 1
        if not self._prepares or uses < PREPARE_FROM or len(self._prepared) >= MOST_PREPARED:
            return None
        name = b"stagepost_%d" % len(self._prepared)
        self._libpq.send_prepare(name, sql.encode(self._encoding))
        self._answer()
        self._prepared[sql] = name
        return name

    def _answer(self) -> Sequence[Any]:
        answers: Sequence[Any] = self._wait(self._answers(self._libpq), self._libpq.socket, LOOK_SECONDS)
        for answer in answers:
            if answer.error_message:
                raise self._errors.error_from_result(answer, encoding=self._encoding)
        return answers

    def _text(self, value: Any) -> bytes | None:
        if value is None:
            return None
        text: bytes = (value if isinstance(value, str) else _number(value)).encode(self._encoding)
        if b"\0" in text:  # libpq would send what is before it
            raise self._errors.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return text


def _number(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"statements take text, numbers and null, not {type(value).__name__}")
