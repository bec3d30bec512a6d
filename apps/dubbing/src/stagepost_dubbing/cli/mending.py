"""Commands that change something: edit, retry, cancel, tts-requeue, save."""

from __future__ import annotations

from pathlib import Path

import click

from stagepost_dubbing.cli.render import MOST, json_option, show, task_line
from stagepost_dubbing.dubbing import Dubbing

__all__ = ["cancel", "edit", "retry", "save", "tts_requeue"]

GOES_ON = "Workers will continue it, or run the `dub` command again."


@click.command(short_help="Change the translation of a segment.")
@click.argument("task_id")
@click.argument("idx", type=int)
@click.option("--text", required=True, help="The new translation.")
@json_option
def edit(*, task_id: str, idx: int, text: str, is_json: bool) -> None:
    """Change the translation of segment IDX; that segment is spoken again, and the video is rebuilt."""
    with Dubbing() as dubbing:
        task = dubbing.edit(task_id, idx, text)
    show(task, [task_line(task), GOES_ON], is_json=is_json)


@click.command(short_help="Continue a task that failed.")
@click.argument("task_id")
@json_option
def retry(*, task_id: str, is_json: bool) -> None:
    """Continue a task that failed or was cancelled; completed work is not repeated."""
    with Dubbing() as dubbing:
        task = dubbing.retry(task_id)
    show(task, [task_line(task), GOES_ON], is_json=is_json)


@click.command(short_help="Cancel a task.")
@click.argument("task_id")
@json_option
def cancel(*, task_id: str, is_json: bool) -> None:
    """Cancel a task: waiting steps end, and running ones are asked to stop."""
    with Dubbing() as dubbing:
        dubbing.cancel(task_id)
        task = dubbing.task(task_id)
    show(task, [f"task {task.id} has been asked to stop."], is_json=is_json)


@click.command("tts-requeue", short_help="Retry segments that could not be spoken.")
@click.option(
    "--limit", type=click.IntRange(1, MOST), default=100, show_default=True, help="Maximum number of segments."
)
@json_option
def tts_requeue(*, limit: int, is_json: bool) -> None:
    """Retry failed tasks that have unspoken segments. A schedule also does this."""
    with Dubbing() as dubbing:
        sent = dubbing.requeue_speech(limit=limit)
    show(sent, [f"sent again: {task_id}" for task_id in sent] or ["There is nothing to send again."], is_json=is_json)


@click.command(short_help="Write the dubbed video to a file.")
@click.argument("task_id")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def save(*, task_id: str, file: Path, is_json: bool) -> None:
    """Write the dubbed video of a task to FILE."""
    with Dubbing() as dubbing:
        dubbing.save(task_id, file)
    show({"output": str(file)}, [str(file)], is_json=is_json)
