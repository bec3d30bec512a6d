"""Commands that change something: edit, retry, cancel, tts-requeue, save."""

from __future__ import annotations

from pathlib import Path

import click

from stagepost_dubbing.cli.render import MOST, json_option, show, task_line
from stagepost_dubbing.dubbing import Dubbing

__all__ = ["cancel", "edit", "retry", "save", "tts_requeue"]

GOES_ON = "Workers go on with it; or give the `dub` command again."


@click.command(short_help="Change the translation of a segment.")
@click.argument("task_id")
@click.argument("idx", type=int)
@click.option("--text", required=True, help="What is to be said instead.")
@json_option
def edit(*, task_id: str, idx: int, text: str, is_json: bool) -> None:
    """Give segment IDX of a task another translation: that segment is spoken anew, and the video made again."""
    with Dubbing() as dubbing:
        task = dubbing.edit(task_id, idx, text)
    show(task, [task_line(task), GOES_ON], is_json=is_json)


@click.command(short_help="Go on with a task that failed.")
@click.argument("task_id")
@json_option
def retry(*, task_id: str, is_json: bool) -> None:
    """Go on with a task that failed or was cancelled; what is done is not done again."""
    with Dubbing() as dubbing:
        task = dubbing.retry(task_id)
    show(task, [task_line(task), GOES_ON], is_json=is_json)


@click.command(short_help="Stop a task.")
@click.argument("task_id")
@json_option
def cancel(*, task_id: str, is_json: bool) -> None:
    """Stop a task: what waits is ended, what runs is asked to stop."""
    with Dubbing() as dubbing:
        dubbing.cancel(task_id)
        task = dubbing.task(task_id)
    show(task, [f"task {task.id} is asked to stop."], is_json=is_json)


@click.command("tts-requeue", short_help="Try segments again that could not be spoken.")
@click.option("--limit", type=click.IntRange(1, MOST), default=100, show_default=True, help="At most so many segments.")
@json_option
def tts_requeue(*, limit: int, is_json: bool) -> None:
    """Send task.tts again for failed tasks with segments that nobody spoke; also done by a schedule."""
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
