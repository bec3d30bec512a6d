"""Formats tasks, steps and segments, as text or as JSON."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import msgspec

from stagepost_dubbing.dubbing import TaskView
from stagepost_dubbing.progress import StepProgress
from stagepost_dubbing.settings import STEPS
from stagepost_dubbing.tables.segments import Segment
from stagepost_dubbing.tables.tasks import Task

__all__ = [
    "MOST",
    "as_json",
    "json_option",
    "printable",
    "progress_bars",
    "segment_table",
    "show",
    "task_line",
    "view_lines",
]

MOST = 1_000_000
"""Upper limit of every number option, which every database can handle."""


def json_option(function: Any) -> Any:
    """Add the `--json` option to a command."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON.")(function)


def as_json(value: Any) -> str:
    """Format any value of the API as JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def show(value: Any, lines: Sequence[str], *, is_json: bool) -> None:
    """Print a value as JSON, or the lines that describe it."""
    if is_json:
        click.echo(as_json(value))
    else:
        for line in lines:
            click.echo(line)


def task_line(task: Task) -> str:
    """Format a task on one line."""
    revision = "" if task.revision == 1 else f" (revision {task.revision})"
    languages = f"{task.source_language} → {task.target_language}"
    return f"{task.id}  {task.status:9}  {languages}  {printable(task.title)}{revision}"


def view_lines(view: TaskView) -> list[str]:
    """Format a task and its steps."""
    lines = [task_line(view.task)]
    lines += [f"  {step.step:14} {step.status:10} {described(step)}" for step in view.steps]
    if view.task.error is not None:
        lines.append(f"  {printable(view.task.error)}")
    if view.task.status == "failed":
        lines.append(f"  To continue: stagepost-dubbing retry {view.task.id}")
    return lines


def described(step: StepProgress) -> str:
    """Describe a step's progress in words."""
    parts = []
    if step.segments is not None:
        parts.append(f"{step.segments[0]} of {step.segments[1]} segments")
    elif step.status == "running":
        parts.append(f"{step.done:.0%}")
    if step.seconds:
        parts.append(f"{step.seconds:.1f} s")
    if step.attempts > 1:
        parts.append(f"{step.attempts} attempts")
    if step.status == "failed" and step.error is not None:
        parts.append(printable(step.error))
    return ", ".join(parts)


def segment_table(found: Sequence[Segment]) -> list[str]:
    """Format segments with both texts, to the width of the terminal."""
    width = max(20, (shutil.get_terminal_size((120, 24)).columns - 26) // 2)
    lines = [f"{'idx':>4}  {'from':>7}  {'to':>7}  {'source':{width}}  translation"]
    for segment in found:
        source, target = _cut(segment.src_text, width), _cut(segment.mt_text or "", width)
        times = f"{segment.start_ms / 1000:7.2f}  {segment.end_ms / 1000:7.2f}"
        lines.append(f"{segment.idx:>4}  {times}  {source:{width}}  {target}")
    return lines


def printable(text: str) -> str:
    """Replace characters that could control the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _cut(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width else text[: width - 1] + "…"


@contextlib.contextmanager
def progress_bars(*, is_quiet: bool = False) -> Iterator[Callable[[TaskView], None]]:
    """Draw a bar for each step on a terminal with rich; otherwise print a line for each change."""
    if is_quiet:
        yield lambda _view: None
        return
    if sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            from rich.console import Console  # noqa: PLC0415 - an option
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

            name, text = TextColumn("{task.description:14}"), TextColumn("{task.fields[text]}")
            columns = (name, BarColumn(), text, TimeElapsedColumn())
            with Progress(*columns, console=Console(stderr=True)) as progress:
                bars = {step: progress.add_task(step, total=1.0, start=False, text="") for step in STEPS}

                def draw(view: TaskView) -> None:
                    for step in view.steps:
                        if step.status != "waiting":
                            progress.start_task(bars[step.step])
                        progress.update(bars[step.step], completed=step.done, text=described(step) or step.status)
                        if step.status == "succeeded":
                            progress.stop_task(bars[step.step])

                yield draw
                return
    yield _Told()


class _Told:
    """Prints a line when a step's status changes."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def __call__(self, view: TaskView) -> None:
        for step in view.steps:
            if step.status not in {"waiting", self._last.get(step.step)}:
                self._last[step.step] = step.status
                click.echo(f"{step.step:14} {step.status:10} {described(step)}".rstrip(), err=True)
