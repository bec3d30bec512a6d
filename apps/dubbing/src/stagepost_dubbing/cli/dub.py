"""`stagepost-dubbing dub`: dubs one video with a worker in this process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from stagepost import Worker, configure_logging
from stagepost_dubbing.cli.render import as_json, progress_bars, segment_table, show, view_lines
from stagepost_dubbing.dubbing import Dubbing, TaskView
from stagepost_dubbing.pipeline import OWN_QUEUE
from stagepost_dubbing.settings import STEPS
from stagepost_dubbing.steps.leftovers import remove_leftovers
from stagepost_dubbing.tables.tasks import DubOptions, Task

__all__ = ["dub", "work_until_ended"]

LOOK_SECONDS = 0.2
RESCUE_SECONDS = 15
"""How long a worker may take to rescue a step after its lease has ended."""


@click.command(short_help="Dub a video.")
@click.argument("video", type=click.Path(path_type=Path))
@click.option("--to", required=True, metavar="LANGUAGE", help="The language to dub into, such as pt.")
@click.option(
    "--from", "source", default="en", show_default=True, metavar="LANGUAGE", help="The language of the video."
)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File to write the video to.")
@click.option("--id", "task_id", metavar="UUID", help="The task's id. [default: derived from the video and options]")
@click.option("--speaker", default="default", show_default=True, help="The speaker, if the voice has several.")
@click.option("--keep-original", is_flag=True, help="Keep the original sound as a second track.")
@click.option(
    "--duck", "duck_db", type=float, metavar="DB", help="Keep the original under the voice, this much lower: -18."
)
@click.option("--detach", is_flag=True, help="Only submit the task; workers elsewhere run it.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option("--verbose", "-v", is_flag=True, help="Show log messages.")
def dub(
    *,
    video: Path,
    to: str,
    source: str,
    output: Path | None,
    task_id: str | None,
    speaker: str,
    keep_original: bool,
    duck_db: float | None,
    detach: bool,
    is_json: bool,
    verbose: bool,
) -> None:
    """Dub VIDEO into another language.

    Run the same command again to continue where it stopped.
    """
    configure_logging("info" if verbose else "critical")
    options = DubOptions(speaker=speaker, keep_original=keep_original, duck_db=duck_db)
    with Dubbing() as dubbing:
        task = dubbing.submit(video, to=to, source=source, id=task_id, options=options)
        if task.status in {"failed", "cancelled"}:
            task = dubbing.retry(task.id)
        if detach:
            hint = f"To watch it: stagepost-dubbing watch {task.id}"
            show(dubbing.view(task.id), [*view_lines(dubbing.view(task.id)), hint], is_json=is_json)
            return
        if not task.has_ended:
            dubbing.services.check(STEPS)
            remove_leftovers(dubbing.settings.work_directory)
            if not is_json:
                _tell_of_others(dubbing.held(task.id))
            with progress_bars(is_quiet=is_json) as draw, _resumable(task):
                asyncio.run(work_until_ended(dubbing, task.id, on_look=draw))
        _finish(dubbing, task.id, output or Path(f"{video.stem}.{to}.mp4"), is_json=is_json)


async def work_until_ended(
    dubbing: Dubbing, task_id: str, *, on_look: Callable[[TaskView], None] = lambda _view: None
) -> Task:
    """Run a worker in this process until a task has ended."""
    worker = Worker(dubbing.app)
    running = asyncio.create_task(worker.run())
    try:
        while True:
            view = await asyncio.to_thread(dubbing.view, task_id)
            on_look(view)
            if view.task.has_ended:
                break
            await asyncio.wait({running}, timeout=LOOK_SECONDS)
            if running.done():
                await running
                break
    finally:
        worker.stop()
        await running
    # The task's result is stored, but the end of its run may not be recorded yet.
    await Worker(dubbing.app, queues=[OWN_QUEUE]).run(until_idle=True)
    return view.task


def _tell_of_others(held: Mapping[str, float]) -> None:
    """Print which steps another process holds, because a killed process cannot be told from a slow one."""
    for step, seconds in held.items():
        click.echo(
            f"{step:14} is held by another process. If that was killed, this one takes over the step within "
            f"{seconds + RESCUE_SECONDS:.0f} s.",
            err=True,
        )


@contextlib.contextmanager
def _resumable(task: Task) -> Iterator[None]:
    """Explain how to continue after an interruption."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"\nStopped. Run the same command again to continue task {task.id}.", err=True)
        sys.exit(130)


def _finish(dubbing: Dubbing, task_id: str, output: Path, *, is_json: bool) -> None:
    view = dubbing.view(task_id)
    if view.task.status != "done":
        show(view, view_lines(view), is_json=is_json)
        sys.exit(1)
    dubbing.save(task_id, output)
    if is_json:
        click.echo(as_json({"task": view.task, "steps": view.steps, "output": str(output)}))
        return
    for line in segment_table(dubbing.segments(task_id)):
        click.echo(line)
    click.echo(f"task {task_id} is done: {output}")
