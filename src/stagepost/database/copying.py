"""Formats rows as text for PostgreSQL's COPY, in pieces large enough to send efficiently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stagepost.database.statement import Row

__all__ = ["pieces_of"]

PIECE = 32_768
NULL = "\\N"


def pieces_of(rows: Iterable[Row]) -> Iterator[str]:
    """Format one line per row. Columns that rows share are formatted once, which saves most of the work."""
    shared, end = None, ""
    lines: list[str] = []
    size = 0
    for own, its_shared in rows:
        if its_shared is not shared:
            shared, end = its_shared, "\t".join(["", *map(_written, its_shared)]) + "\n"
        line = "\t".join(map(_written, own)) + end
        lines.append(line)
        size += len(line)
        if size >= PIECE:
            yield "".join(lines)
            lines, size = [], 0
    yield "".join(lines)


def _written(value: Any) -> str:
    if value is None:
        return NULL
    text = str(value)
    if "\\" in text or "\t" in text or "\n" in text or "\r" in text:  # the check costs a fifth of four calls to replace
        return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return text
