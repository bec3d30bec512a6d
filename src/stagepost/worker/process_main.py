"""The program inside a handler's process: reads an attempt, runs it and writes its outcome."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import logging
import os
import runpy
import signal
import sys
import threading
from functools import cache
from queue import SimpleQueue
from typing import Any, BinaryIO

import msgspec

from stagepost.client.app import App
from stagepost.client.context import current_job, enter
from stagepost.client.hooks import Hooks, fails_attempt
from stagepost.client.running import RunningAttempt
from stagepost.client.tasks import AppTask, app_of
from stagepost.clock import SystemClock, sleep
from stagepost.config.logging import FORMAT_VARIABLE, LEVEL_VARIABLE, configure_logging
from stagepost.errors import UnknownTask
from stagepost.model.outcome import Outcome, Refused
from stagepost.model.retry import describe_error
from stagepost.task import CHILD_MODULE, Task
from stagepost.worker.processes import STOP_SIGNALS, Assignment, Reply, Report, read_frame, write_frame

__all__ = ["main", "perform"]

REPORT_SECONDS = 0.5
"""The least time between two reports to the worker, however often the handler reports."""


def main(input_descriptor: int, output_descriptor: int) -> None:
    """Run attempts until the worker ends."""
    _leave_signals_to_worker()
    if not logging.getLogger().handlers:
        configure_logging(os.environ.get(LEVEL_VARIABLE), format=os.environ.get(FORMAT_VARIABLE, "text"))
    assignments: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(input_descriptor, assignments), daemon=True).start()
    with os.fdopen(output_descriptor, "wb") as output:
        sender = ReplySender(output)
        sender.start()
        while True:
            assignment = msgspec.json.decode(assignments.get(), type=Assignment)
            sender.reply(_attempt(assignment, sender))


def _leave_signals_to_worker() -> None:
    """Ignore signals that are sent to every process: the worker decides when this one ends, and kills it if needed."""

    # Not SIG_IGN: programs that a handler starts would inherit it, and could not be stopped.
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    _restore_signals_in_forks()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _restore_signals_in_forks() -> None:
    """Give processes that a handler forks the default signal handlers, from their first moment on."""
    forking = threading.local()

    def block() -> None:
        forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, forking.mask)

    def reset() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        restore()

    os.register_at_fork(before=block, after_in_parent=restore, after_in_child=reset)


class ReplySender(threading.Thread):
    """Sends the worker the outcome of an attempt, and its newest progress up to twice a second."""

    def __init__(self, output: BinaryIO) -> None:
        super().__init__(name="stagepost-replies", daemon=True)
        self._output = output
        self._lock = threading.Lock()
        self._has_news = threading.Event()
        self._running: RunningAttempt | None = None

    def follow(self, running: RunningAttempt) -> None:
        """Send the progress of this attempt from now on."""
        running.on_report = self._has_news.set
        with self._lock:
            self._running = running

    def reply(self, reply: Reply) -> None:
        """Send the outcome of the attempt. Later reports of threads that it left running are ignored."""
        with self._lock:
            self._running = None
            write_frame(self._output, msgspec.json.encode(reply))

    def run(self) -> None:
        """Wait for reports and send the newest."""
        while self._has_news.wait():
            self._has_news.clear()
            with self._lock:
                if self._running is not None and self._running.reported is not None:
                    write_frame(self._output, msgspec.json.encode(Report(self._running.reported)))
            sleep(REPORT_SECONDS)


def _read(descriptor: int, assignments: SimpleQueue[bytes]) -> None:
    with os.fdopen(descriptor, "rb") as pipe:
        while True:
            try:
                assignments.put(read_frame(pipe))
            except EOFError:
                # The worker died. Its lease expires, another worker runs the job, and no result from here is accepted.
                os._exit(1)


def _attempt(assignment: Assignment, sender: ReplySender) -> Reply:
    try:
        task = _task(assignment)
    except BaseException as error:  # noqa: BLE001 - an import can raise anything
        return Reply(Refused(*describe_error(error)))
    running = RunningAttempt(assignment.job, task, SystemClock())
    sender.follow(running)
    outcome = contextvars.copy_context().run(perform, running)
    return Reply(outcome, running.settlement)


def perform(running: RunningAttempt) -> Outcome:
    """Call the handler and convert what it returns or raises to an outcome.

    The context variables stay set: threads that the handler started belong to this attempt.
    """
    task = running.task
    hooks = app_of(task).hooks if isinstance(task, AppTask) else Hooks()
    enter(running)
    try:
        args, kwargs = task.signature.decode(running.job.payload)
        if task.wants_context:
            args = (current_job(), *args)
        function = hooks.wrap(task) if hooks.around else task.function
        return running.completed(function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - anything that a handler raises is an outcome
        outcome = running.raised(error)
        if hooks.failure and fails_attempt(error, outcome) and not running.is_settled:
            hooks.report_failure(error, run=asyncio.run)
        return outcome


def _task(assignment: Assignment) -> Task[..., Any]:
    """Find the task in the module that registers it."""
    if assignment.setup is not None:
        module, _, name = assignment.setup.partition(":")
        getattr(importlib.import_module(module), name)()
    for value in _namespace(assignment.module, assignment.script).values():
        if isinstance(value, Task) and value.name == assignment.task_name:
            return value
        if isinstance(value, App):
            try:
                return value.registry.get(assignment.task_name)
            except UnknownTask:
                continue
    raise UnknownTask(assignment.task_name)


@cache
def _namespace(module: str, script: str | None) -> dict[str, Any]:
    """Import the module, or run the script, that registers tasks. This happens once per process."""
    if script is not None:
        return runpy.run_path(script, run_name=CHILD_MODULE)
    return vars(importlib.import_module(module))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
