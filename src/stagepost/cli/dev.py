"""`stagepost dev`: runs a worker and restarts it when its source changes."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import click

from stagepost.cli.invocation import Invocation
from stagepost.cli.options import Command
from stagepost.cli.watch import SourceWatch, python_files_below, sources_in
from stagepost.cli.worker import worker_command, worker_options
from stagepost.worker.supervisor_connection import ChildConnection

__all__ = ["Reloader", "dev"]

POLL_SECONDS = 0.3
SHUTDOWN_SECONDS = 5.0


@click.command(cls=Command, short_help="Run a worker that restarts when your code changes.")
@worker_options
@click.pass_obj
def dev(
    invocation: Invocation, *, queues: list[str], concurrency: int | None, log_level: str | None, log_format: str
) -> None:
    """Run a worker for development that restarts whenever your code changes.

    Running jobs get a few seconds to finish. The others return to their queue and run again.
    """
    command = worker_command(
        invocation,
        queues=queues,
        concurrency=concurrency,
        log_level=log_level or "info",
        log_format=log_format,
        shutdown_timeout=SHUTDOWN_SECONDS,
        report_sources=True,
    )
    Reloader(command, say=invocation.output.remark).run()


class Reloader:
    """Keeps one worker running, and restarts it when a file that it imported changes.

    If the worker cannot start, it is tried again when any Python file below the current directory changes.
    """

    def __init__(self, command: list[str], *, say: Callable[[str], None], folder: Path | None = None) -> None:
        self._command = command
        self._say = say
        self._folder = folder or Path.cwd()
        self._watch = SourceWatch()
        self._stop_event = threading.Event()

    def run(self) -> None:
        """Run one worker after another until Ctrl-C."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop_event.set())
        self._say("Watching your code. Press Ctrl-C to stop.")
        while not self._stop_event.is_set():
            self._run_worker()

    def _run_worker(self) -> None:
        """Run one worker until its code changes."""
        # Before the worker imports them, so that a file saved during startup counts as changed.
        self._watch.note(python_files_below(self._folder))
        lifeline = ChildConnection()
        process = subprocess.Popen(lifeline.command(self._command), **lifeline.process_options)
        lifeline.started()
        try:
            changed = self._wait_for_change(process, lifeline)
            if changed:
                names = ", ".join(_short(file, self._folder) for file in changed)
                self._say(f"{names} changed: restarting.")
            self._end(process)
        finally:
            lifeline.close()

    def _wait_for_change(self, process: subprocess.Popen[bytes], lifeline: ChildConnection) -> list[Path]:
        has_died = False
        while not self._stop_event.wait(POLL_SECONDS):
            for message in lifeline.messages():
                self._watch.watch(sources_in(message))
            if process.poll() is not None and not has_died:
                has_died = True
                self._watch.watch(python_files_below(self._folder))
                self._say(f"The worker ended with exit code {process.returncode}. Change your code to try again.")
            if changed := self._watch.changed():
                return changed
        return []

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(timeout=SHUTDOWN_SECONDS + 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _short(file: Path, folder: Path) -> str:
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)
