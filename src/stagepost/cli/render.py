"""Output of commands: JSON, tables and progress bars; uses rich on a terminal if it is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import click
import msgspec

from stagepost.cli.layout import Bar, Section, printable, table_lines

__all__ = ["Output"]


class Output:
    """Writes results to standard output; progress bars, questions and remarks to standard error."""

    def __init__(self, *, as_json: bool, is_quiet: bool = False) -> None:
        self.as_json = as_json
        self.is_quiet = is_quiet

    def result(self, document: Any, show: Callable[[], None]) -> None:
        """Print the document as JSON if `--json` was given; otherwise call `show`."""
        if self.as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        else:
            show()

    def document_line(self, document: Any) -> None:
        """Print one JSON document on one line, for commands that print a stream of them."""
        click.echo(msgspec.json.encode(document).decode())

    def say(self, text: str = "") -> None:
        """Print a line of the result."""
        click.echo(printable(text))

    def remark(self, text: str) -> None:
        """Print a line to standard error, unless --json or --quiet was given."""
        if not (self.as_json or self.is_quiet):
            click.echo(printable(text), err=True)

    def warn(self, text: str) -> None:
        """Print a line to standard error, even with --json or --quiet."""
        click.echo(printable(text), err=True)

    def table(self, section: Section) -> None:
        """Print a table, or its `empty` text."""
        if not section.rows:
            self.say(section.empty)
        elif _is_rich(stderr=False):
            from stagepost.cli.rich_render import print_table  # noqa: PLC0415 - an optional package

            print_table(section)
        else:
            for line in table_lines(section):
                click.echo(line)

    def facts(self, facts: Mapping[str, object]) -> None:
        """Print one name and value per line; values that are None are omitted."""
        shown = {name: value for name, value in facts.items() if value is not None}
        width = max((len(name) for name in shown), default=0)
        for name, value in shown.items():
            lines = printable(str(value)).splitlines() or [""]
            click.echo(f"{click.style(f'{name}:'.ljust(width + 1), bold=True)} {lines[0]}")
            for line in lines[1:]:
                click.echo(" " * (width + 2) + line)

    def heading(self, text: str) -> None:
        """Print the heading of a part of the result."""
        click.echo()
        click.secho(printable(text), bold=True)

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Bar]:
        """Show a progress bar while the body runs; without a terminal, print a line at every tenth."""
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
        """Provide a function that replaces the sections on the screen."""
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
    """Prints nothing, for --json and --quiet."""

    def move_to(self, done: int) -> None:
        """Ignore the progress."""

    def say(self, text: str) -> None:
        """Ignore the text."""


class LineBar(Bar):
    """Prints a line at every tenth of the total, for logs."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, max(1, total)
        self._tenths = 0

    def move_to(self, done: int) -> None:
        """Print a line if another tenth is finished."""
        tenths = 10 * done // self._total
        if tenths > self._tenths:
            self._tenths = tenths
            self.say(f"{self._label}: {done:,} of {self._total:,} ({10 * tenths} %)")

    def say(self, text: str) -> None:
        """Print a line to standard error."""
        click.echo(printable(text), err=True)


class ClickBar(Bar):
    """A progress bar for terminals without rich."""

    def __init__(self, shown: Any) -> None:
        self._shown = shown

    def move_to(self, done: int) -> None:
        """Redraw the bar at this number."""
        self._shown.update(done - self._shown.pos)

    def say(self, text: str) -> None:
        """Print a line below the bar, which is then redrawn."""
        click.echo(f"\n{printable(text)}", err=True)


@cache
def _has_rich() -> bool:
    return find_spec("rich") is not None


def _is_terminal(*, stderr: bool) -> bool:
    return (sys.stderr if stderr else sys.stdout).isatty()


def _is_rich(*, stderr: bool) -> bool:
    return _is_terminal(stderr=stderr) and _has_rich()
