"""Tables and texts as commands print them, whether or not rich is installed."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from stagepost.model.job import to_datetime

__all__ = ["Bar", "Section", "bar_text", "cell_text", "duration_text", "printable", "table_lines", "time_text"]

Row = Sequence[object]


@dataclass(frozen=True)
class Section:
    """A table with a title and a text for when it has no rows."""

    columns: Sequence[str]
    rows: Sequence[Row]
    title: str | None = None
    numbers: frozenset[str] = field(default=frozenset())
    """Columns to align right."""
    empty: str = "None."
    """Printed instead of a table without rows."""


class Bar(ABC):
    """Shows the progress of a long operation."""

    @abstractmethod
    def move_to(self, done: int) -> None:
        """Show that `done` of the total is finished."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Print a line without breaking the bar."""


def table_lines(section: Section) -> list[str]:
    """Align a table's columns, two spaces apart."""
    cells = [list(section.columns), *[[cell_text(value) for value in row] for row in section.rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(section.columns))]
    lines = []
    for row in cells:
        parts = [
            text.rjust(width) if name in section.numbers else text.ljust(width)
            for name, text, width in zip(section.columns, row, widths, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def printable(text: str) -> str:
    """Escape control characters: text from the database must not control the terminal."""
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cf", "Cs"} else f"\\x{ord(char):02x}"
        for char in text
    )


def cell_text(value: object) -> str:
    """Format a value on one line."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return " ".join(printable(str(value)).split()) or "-"


def duration_text(microseconds: int) -> str:
    """Format a duration in its largest fitting unit, rounded down."""
    seconds = microseconds / 1_000_000
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def bar_text(fraction: float, *, cells: int = 20) -> str:
    """Draw a bar for a fraction from 0.0 to 1.0; it is full only at 1.0."""
    full = cells if fraction >= 1 else min(cells - 1, int(fraction * cells))
    return "█" * full + "░" * (cells - full)


def time_text(time: datetime | int | None) -> str | None:
    """Format a datetime in UTC, or microseconds since 1970, to the second."""
    if isinstance(time, int):
        time = to_datetime(time)
    return None if time is None else f"{time:%Y-%m-%d %H:%M:%S}Z"
