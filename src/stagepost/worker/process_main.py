"""The program inside a handler's process: reads an attempt, runs it, writes what it gave."""

from __future__ import annotations

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
from stagepost.client.running import RunningAttempt, outcome_of
from stagepost.clock import SystemClock, sleep
from stagepost.config.logging import configure_logging
from stagepost.errors import UnknownTask
from stagepost.model.outcome import Outcome, Refused
from stagepost.model.retry import describe_error
from stagepost.task import CHILD_MODULE, Task
from stagepost.worker.processes import STOP_SIGNALS, Assignment, Reply, Report, read_frame, write_frame

__all__ = ["main", "perform"]

REPORT_SECONDS = 0.5
"""The least time between two reports to the worker, however often the handler reports."""


def main(input_descriptor: int, output_descriptor: int) -> None:
    """Serve attempts until the worker is gone."""
    _leave_signals_to_worker()
    if not logging.getLogger().handlers:
        configure_logging(os.environ.get("STAGEPOST_LOG_LEVEL", "INFO"))
    assignments: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(input_descriptor, assignments), daemon=True).start()
    with os.fdopen(output_descriptor, "wb") as output:
        teller = Teller(output)
        teller.start()
        while True:
            assignment = msgspec.json.decode(assignments.get(), type=Assignment)
            teller.reply(_attempt(assignment, teller))


def _leave_signals_to_worker() -> None:
    """Ignore what tells every process to stop: the worker decides when, and kills this one if it must."""

    # Not SIG_IGN, which programs that a handler starts would inherit: nobody could stop them then.
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    _heed_signals_in_forks()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _heed_signals_in_forks() -> None:
    """Let processes that a handler forks be stopped as any other, from their first moment on."""
    forking = threading.local()

    def block() -> None:
        forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, forking.mask)

    def heed() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        restore()

    os.register_at_fork(before=block, after_in_parent=restore, after_in_child=heed)


class Teller(threading.Thread):
    """Tells the worker what an attempt gave in the end, and how far it is: the newest, a few times a second."""

    def __init__(self, output: BinaryIO) -> None:
        super().__init__(name="stagepost-teller", daemon=True)
        self._output = output
        self._lock = threading.Lock()
        self._has_news = threading.Event()
        self._running: RunningAttempt | None = None

    def follow(self, running: RunningAttempt) -> None:
        """Pass on what this attempt reports from now on."""
        running.on_report = self._has_news.set
        with self._lock:
            self._running = running

    def reply(self, reply: Reply) -> None:
        """Tell what the attempt gave; nothing that it left running is heard after that."""
        with self._lock:
            self._running = None
            write_frame(self._output, msgspec.json.encode(reply))

    def run(self) -> None:
        """Wait for reports and pass on the newest."""
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
                # The worker died: its lease ends, others will run this job, nothing done here would be accepted.
                os._exit(1)


def _attempt(assignment: Assignment, teller: Teller) -> Reply:
    try:
        task = _task(assignment)
    except BaseException as error:  # noqa: BLE001 - an import can raise anything
        return Reply(Refused(*describe_error(error)), settled_in_transaction=False)
    running = RunningAttempt(assignment.job, task, SystemClock())
    teller.follow(running)
    outcome = contextvars.copy_context().run(perform, running)
    return Reply(outcome, running.settled_in_transaction)


def perform(running: RunningAttempt) -> Outcome:
    """Decode, call, and say what came of it; what runs in this context afterwards runs for this attempt, too."""
    task = running.task
    enter(running)
    try:
        args, kwargs = task.signature.decode(running.job.payload)
        if task.wants_context:
            args = (current_job(), *args)
        return running.completed(task.function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome
        return outcome_of(error, running.job, task)


def _task(assignment: Assignment) -> Task[..., Any]:
    """Find the task where it is registered."""
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
    """Import the module, or run the script, that registers tasks; once, not for every attempt."""
    if script is not None:
        return runpy.run_path(script, run_name=CHILD_MODULE)
    return vars(importlib.import_module(module))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
