"""How much one statement takes: rows are cut into pieces that fit, and a value that never fits is refused."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import msgspec

from stagepost.database.dialect import Dialect, SqlCall
from stagepost.database.statement import Capacity, Rows, Statement, Statements
from stagepost.errors import ValueTooLarge
from stagepost.model.groups import GROUP_BYTES, groups_of

__all__ = ["MARGIN_BYTES", "Gauge", "Piece", "escaped_size", "in_pieces"]

MARGIN_BYTES = 16 * 1024
"""For the text of a statement and its other parameters."""
ROW_BYTES = 100
"""For the id of a row, which some texts list twice beside the rows."""
SAFE_BYTES = 32 * 1024
"""So much is sent to a server without asking it for its limit."""


class Piece(NamedTuple):
    """Rows that one statement takes, and the same as its JSON parameter."""

    rows: Sequence[Any]
    text: str


def in_pieces(name: str, parameter: str, rows: Sequence[Any]) -> Statements[list[Piece]]:
    """Cut rows into pieces that a statement takes as this parameter, in their order; nearly always that is one."""
    encoded = msgspec.json.encode(rows)
    needed = _longest(encoded, len(rows))
    [(most_bytes,)] = yield Capacity(name, parameter, needed)
    if needed <= most_bytes:
        return [Piece(rows, encoded.decode())]
    parts = [(row, msgspec.json.encode(row)) for row in rows]
    return [
        Piece([row for row, _ in group], "[" + b",".join(text for _, text in group).decode() + "]")
        for group in groups_of(
            parts, size=lambda part: escaped_size(part[1]) + ROW_BYTES, most=len(parts), most_bytes=most_bytes
        )
    ]


def _longest(encoded: bytes, rows: int) -> int:
    """Say how long JSON may become in a statement; exactly only where it may be too long."""
    size = 2 * len(encoded)
    return (size if size <= SAFE_BYTES else escaped_size(encoded)) + ROW_BYTES * rows


def escaped_size(text: bytes) -> int:
    """Count the bytes of JSON as drivers write it that put parameters into the statement, between quotes."""
    return len(text) + text.count(b"\\") + text.count(b'"') + text.count(b"'")


class Gauge:
    """Knows how long the statements of one connection may be; asks its server where that is the caller's."""

    def __init__(self, dialect: Dialect, most_bytes: int | None) -> None:
        self._dialect = dialect
        self._most_bytes = most_bytes
        self.is_needed = dialect.longest_statement is not None and most_bytes is None
        """The connection is one that does not look at the size of statements itself."""

    def capacity(self, step: Capacity) -> Generator[SqlCall, Rows, int]:
        """Say how many bytes of rows a statement takes, wherever its text repeats them."""
        if self._dialect.longest_statement is None:
            return GROUP_BYTES
        times = max(named[step.parameter] for named in self._dialect.mentions(step.name))
        if self.is_needed and step.needed * times <= SAFE_BYTES:
            return step.needed
        most = (yield from self._limit()) - MARGIN_BYTES
        return max(1, min(GROUP_BYTES, most // times))

    def check(self, statement: Statement) -> Generator[SqlCall, Rows, None]:
        """Refuse a statement that the server would refuse, and close the connection over."""
        texts = {name: value for name, value in statement.parameters.items() if isinstance(value, str)}
        if sum(map(len, texts.values())) <= SAFE_BYTES:
            return
        limit = yield from self._limit()
        sizes = {name: escaped_size(text.encode()) for name, text in texts.items()}
        mentions = self._dialect.mentions(statement.name)
        size = max(sum(times * sizes.get(name, 0) for name, times in named.items()) for named in mentions)
        if size + MARGIN_BYTES > limit:
            raise ValueTooLarge(size, limit)

    def _limit(self) -> Generator[SqlCall, Rows, int]:
        if self._most_bytes is None:
            [(limit,)] = yield SqlCall(f"select {self._dialect.longest_statement}", {}, needs_transaction=False)
            self._most_bytes = int(limit)
        return self._most_bytes
