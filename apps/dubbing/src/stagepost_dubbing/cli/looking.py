"""Commands that only read: status, watch, list, segments."""

from __future__ import annotations

import sys

import click

from stagepost_dubbing.cli.render import MOST, json_option, progress_bars, segment_table, show, task_line, view_lines
from stagepost_dubbing.dubbing import Dubbing

__all__ = ["list_", "segments", "status", "watch"]


@click.command(short_help="Show the progress of a task.")
@click.argument("task_id")
@json_option
def status(*, task_id: str, is_json: bool) -> None:
    """Show a task and the progress of its steps."""
    with Dubbing() as dubbing:
        view = dubbing.view(task_id)
    show(view, view_lines(view), is_json=is_json)


@click.command(short_help="Wait for a task, with progress bars.")
@click.argument("task_id")
@click.option("--timeout", type=float, metavar="SECONDS", help="How long to wait. [default: until the task ends]")
@json_option
def watch(*, task_id: str, timeout: float | None, is_json: bool) -> None:
    """Wait until a task has ended. Exits with 1 unless it is done."""
    with Dubbing() as dubbing:
        with progress_bars(is_quiet=is_json) as draw:
            task = dubbing.wait(task_id, timeout=timeout, on_look=draw)
        view = dubbing.view(task_id)
    show(view, view_lines(view), is_json=is_json)
    if task.status != "done":
        sys.exit(1)


@click.command("list", short_help="List tasks.")
@click.option(
    "--status", type=click.Choice(["queued", "running", "done", "failed", "cancelled"]), help="Show only this status."
)
@click.option("--limit", type=click.IntRange(1, MOST), default=50, show_default=True)
@json_option
def list_(*, status: str | None, limit: int, is_json: bool) -> None:
    """List the newest tasks."""
    with Dubbing() as dubbing:
        found = dubbing.tasks(status=status, most=limit)
    show(found, [task_line(task) for task in found], is_json=is_json)


@click.command(short_help="Show the text and time of each segment, in both languages.")
@click.argument("task_id")
@json_option
def segments(*, task_id: str, is_json: bool) -> None:
    """Show the segments of a task."""
    with Dubbing() as dubbing:
        found = dubbing.segments(task_id)
    show(found, segment_table(found), is_json=is_json)
