"""Keeps statements within the size that a server accepts: splits rows, and refuses a value that can never fit."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from stagepost.database.dialect import CompiledText, Dialect, SqlCall
from stagepost.database.statement import Rows, Statement
from stagepost.errors import ValueTooLarge
from stagepost.model.groups import GROUP_BYTES, groups_of

__all__ = ["SizeLimit"]

MARGIN_BYTES = 16 * 1024
"""Reserved for the text of a statement and its other parameters."""
ROW_BYTES = 100
"""Reserved for the id of a row, which some statements list twice beside the rows."""
SAFE_BYTES = 32 * 1024
"""Up to this size a statement is sent without asking the server for its limit."""


class SizeLimit:
    """The longest statement that one connection can send."""

    def __init__(self, dialect: Dialect, most_bytes: int | None) -> None:
        self._variable = dialect.longest_statement
        self._most_bytes = most_bytes
        self.must_check = self._variable is not None and most_bytes is None
        """Whether this is a caller's connection, which does not check the size of statements itself."""

    def pieces(self, statement: Statement, texts: Sequence[CompiledText]) -> Generator[SqlCall, Rows, list[Statement]]:
        """Return the statement, or several that together do the same for fewer rows each."""
        pieces = [statement]
        if statement.split is not None:
            rows = statement.parameters[statement.split]
            encoded = msgspec.json.encode(rows)
            needed = _longest(encoded, len(rows))
            room = yield from self._room(needed, times=max(text.mentions[statement.split] for text in texts))
            pieces = [_piece(statement, encoded)] if needed <= room else _split(statement, rows, most_bytes=room)
        if self.must_check:
            for piece in pieces:
                yield from self._check(piece, texts)
        return pieces

    def _room(self, needed: int, *, times: int) -> Generator[SqlCall, Rows, int]:
        """Return how many bytes of rows fit into a statement that names them so many times."""
        if self._variable is None:
            return GROUP_BYTES
        if self.must_check and needed * times <= SAFE_BYTES:
            return needed
        most = (yield from self._limit()) - MARGIN_BYTES
        return max(1, min(GROUP_BYTES, most // times))

    def _check(self, statement: Statement, texts: Sequence[CompiledText]) -> Generator[SqlCall, Rows, None]:
        """Refuse a statement that the server would refuse, closing the connection."""
        values = {name: value for name, value in statement.parameters.items() if isinstance(value, str)}
        if sum(map(len, values.values())) <= SAFE_BYTES:
            return
        limit = yield from self._limit()
        sizes = {name: _escaped_size(value.encode()) for name, value in values.items()}
        size = max(sum(times * sizes.get(name, 0) for name, times in text.mentions.items()) for text in texts)
        if size + MARGIN_BYTES > limit:
            raise ValueTooLarge(size, limit)

    def _limit(self) -> Generator[SqlCall, Rows, int]:
        if self._most_bytes is None:
            [(limit,)] = yield SqlCall(f"select {self._variable}", {}, needs_transaction=False)
            self._most_bytes = int(limit)
        return self._most_bytes


def _piece(statement: Statement, encoded: bytes) -> Statement:
    return Statement(statement.name, {**statement.parameters, str(statement.split): encoded.decode()})


def _split(statement: Statement, rows: Sequence[Any], *, most_bytes: int) -> list[Statement]:
    encoded = map(msgspec.json.encode, rows)
    groups = groups_of(encoded, size=lambda row: _escaped_size(row) + ROW_BYTES, most=len(rows), most_bytes=most_bytes)
    return [_piece(statement, b"[" + b",".join(group) + b"]") for group in groups]


def _longest(encoded: bytes, rows: int) -> int:
    """Return how long JSON can become inside a statement; exact only if it may be too long."""
    size = 2 * len(encoded)
    return (size if size <= SAFE_BYTES else _escaped_size(encoded)) + ROW_BYTES * rows


def _escaped_size(text: bytes) -> int:
    """Count the bytes of JSON as drivers write it that put parameters into the statement, between quotes."""
    return len(text) + text.count(b"\\") + text.count(b'"') + text.count(b"'")
