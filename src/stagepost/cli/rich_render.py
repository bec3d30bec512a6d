"""Tables, bars and live screens with rich; imported only if rich is installed and the output is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from stagepost.cli.layout import Bar, Section, cell_text, printable

__all__ = ["live_screen", "print_table", "rich_bar"]


def print_table(section: Section) -> None:
    """Print a table to standard output."""
    Console().print(_table(section))


@contextmanager
def rich_bar(label: str, total: int) -> Iterator[Bar]:
    """Show a progress bar on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield RichBar(progress, progress.add_task(label, total=total))


class RichBar(Bar):
    """A progress bar that stays below the lines printed meanwhile."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def move_to(self, done: int) -> None:
        """Redraw the bar at this number."""
        self._progress.update(self._task, completed=done)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(Text(printable(text)))


@contextmanager
def live_screen() -> Iterator[Callable[[str, Sequence[Section]], None]]:
    """Provide a function that replaces the sections on the screen."""
    with Live(auto_refresh=False, screen=False) as live:

        def show(title: str, sections: Sequence[Section]) -> None:
            parts: list[RenderableType] = [Text(printable(title), style="bold")]
            for section in sections:
                parts.append(Text(f"\n{section.title or ''}", style="bold"))
                parts.append(_table(section) if section.rows else Text(section.empty))
            live.update(Group(*parts), refresh=True)

        yield show


def _table(section: Section) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in section.columns:
        table.add_column(column, justify="right" if column in section.numbers else "left", overflow="fold")
    for row in section.rows:
        # Text, never markup: stored values must not control the terminal.
        table.add_row(*[Text(cell_text(value)) for value in row])
    return table
