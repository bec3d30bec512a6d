"""How commands speak: JSON, tables and bars; with rich on a terminal, and plainly without it."""

from __future__ import annotations

import sys
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Any

import click
import msgspec

from stagepost.model.job import to_datetime

__all__ = [
    "Bar",
    "Output",
    "Section",
    "bar_text",
    "cell_text",
    "duration_text",
    "printable",
    "table_lines",
    "time_text",
]

Row = Sequence[object]


@dataclass(frozen=True)
class Section:
    """A table with a title."""

    columns: Sequence[str]
    rows: Sequence[Row]
    title: str | None = None
    numbers: frozenset[str] = field(default=frozenset())
    """Columns to set flush right."""
    empty: str = "None."
    """What to say instead of a table without rows."""


class Bar(ABC):
    """Shows how far long work is."""

    @abstractmethod
    def move_to(self, done: int) -> None:
        """Show that so much is done, of the total."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Say something without spoiling the bar."""


class Output:
    """Results go to standard output; bars, questions and remarks to standard error."""

    def __init__(self, *, as_json: bool, is_quiet: bool = False) -> None:
        self.as_json = as_json
        self.is_quiet = is_quiet

    def result(self, document: Any, show: Callable[[], None]) -> None:
        """Give the answer: the document as JSON if that was asked for, or else what `show` says."""
        if self.as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        else:
            show()

    def document_line(self, document: Any) -> None:
        """Write one JSON document on one line, for answers that go on and on."""
        click.echo(msgspec.json.encode(document).decode())

    def say(self, text: str = "") -> None:
        """Say a line of the answer."""
        click.echo(printable(text))

    def remark(self, text: str) -> None:
        """Say something beside the answer; nothing with --json or --quiet."""
        if not (self.as_json or self.is_quiet):
            click.echo(printable(text), err=True)

    def warn(self, text: str) -> None:
        """Say something that must be heard in any case."""
        click.echo(printable(text), err=True)

    def table(self, section: Section) -> None:
        """Show a table."""
        if not section.rows:
            self.say(section.empty)
        elif _is_rich(stderr=False):
            from stagepost.cli.rich_render import print_table  # noqa: PLC0415 - an optional package

            print_table(section)
        else:
            for line in table_lines(section):
                click.echo(line)

    def facts(self, facts: Mapping[str, object]) -> None:
        """Show names and values, one pair a line; what is None is left out."""
        shown = {name: value for name, value in facts.items() if value is not None}
        width = max((len(name) for name in shown), default=0)
        for name, value in shown.items():
            lines = printable(str(value)).splitlines() or [""]
            click.echo(f"{click.style(f'{name}:'.ljust(width + 1), bold=True)} {lines[0]}")
            for line in lines[1:]:
                click.echo(" " * (width + 2) + line)

    def heading(self, text: str) -> None:
        """Begin a part of the answer."""
        click.echo()
        click.secho(printable(text), bold=True)

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Bar]:
        """Show a bar while the body runs; lines now and then where nobody watches a terminal."""
        if self.as_json or self.is_quiet:
            yield SilentBar()
        elif _is_rich(stderr=True):
            from stagepost.cli.rich_render import rich_bar  # noqa: PLC0415 - an optional package

            with rich_bar(label, total) as bar:
                yield bar
        elif _is_terminal(stderr=True):
            with click.progressbar(length=total, label=label, show_pos=True, file=sys.stderr) as shown:
                yield ClickBar(shown)
        else:
            yield LineBar(label, total)

    @contextmanager
    def screen(self) -> Iterator[Callable[[str, Sequence[Section]], None]]:
        """Lend a function that shows sections in place of those before."""
        if not self.as_json and _is_rich(stderr=False):
            from stagepost.cli.rich_render import live_screen  # noqa: PLC0415 - an optional package

            with live_screen() as show:
                yield show
        else:
            yield self._show_plain

    def _show_plain(self, title: str, sections: Sequence[Section]) -> None:
        if _is_terminal(stderr=False):
            click.clear()
        self.say(title)
        for section in sections:
            self.heading(section.title or "")
            self.table(section)


class SilentBar(Bar):
    """Shows nothing."""

    def move_to(self, done: int) -> None:
        """Nothing to do."""

    def say(self, text: str) -> None:
        """Nothing to do."""


class LineBar(Bar):
    """Writes a line at every tenth of the way, for logs."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, max(1, total)
        self._tenths = 0

    def move_to(self, done: int) -> None:
        """Write a line if another tenth is done."""
        tenths = 10 * done // self._total
        if tenths > self._tenths:
            self._tenths = tenths
            self.say(f"{self._label}: {done:,} of {self._total:,} ({10 * tenths} %)")

    def say(self, text: str) -> None:
        """Write a line."""
        click.echo(printable(text), err=True)


class ClickBar(Bar):
    """A bar on a terminal without rich."""

    def __init__(self, shown: Any) -> None:
        self._shown = shown

    def move_to(self, done: int) -> None:
        """Draw it."""
        self._shown.update(done - self._shown.pos)

    def say(self, text: str) -> None:
        """Leave the line of the bar; it is drawn anew below."""
        click.echo(f"\n{printable(text)}", err=True)


def table_lines(section: Section) -> list[str]:
    """Set a table in columns, two spaces apart."""
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
    """Write control characters out: text from a database must not command the terminal."""
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cf", "Cs"} else f"\\x{ord(char):02x}"
        for char in text
    )


def cell_text(value: object) -> str:
    """Write a value on one line."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return " ".join(printable(str(value)).split()) or "-"


def duration_text(microseconds: int) -> str:
    """Write a duration with one unit, rounded down."""
    seconds = microseconds / 1_000_000
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def bar_text(fraction: float, *, cells: int = 20) -> str:
    """Draw how much of something is done, from 0.0 to 1.0; full only when all is."""
    full = cells if fraction >= 1 else min(cells - 1, int(fraction * cells))
    return "█" * full + "░" * (cells - full)


def time_text(instant: int | None) -> str | None:
    """Write an instant (microseconds since 1970) in UTC, to the second."""
    return None if instant is None else f"{to_datetime(instant):%Y-%m-%d %H:%M:%S}Z"


@cache
def _has_rich() -> bool:
    return find_spec("rich") is not None


def _is_terminal(*, stderr: bool) -> bool:
    return (sys.stderr if stderr else sys.stdout).isatty()


def _is_rich(*, stderr: bool) -> bool:
    return _is_terminal(stderr=stderr) and _has_rich()
