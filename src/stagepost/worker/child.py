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
from typing import Any

import msgspec

from stagepost.client.app import App
from stagepost.client.context import JobContext, enter, outcome_of
from stagepost.clock import SystemClock
from stagepost.config.logging import configure_logging
from stagepost.errors import UnknownTask
from stagepost.model.outcome import Outcome, Refused
from stagepost.model.retry import describe_error
from stagepost.task import CHILD_MODULE, Task
from stagepost.worker.children import Assignment, Reply, read_frame, write_frame

__all__ = ["main", "perform"]


def main(input_descriptor: int, output_descriptor: int) -> None:
    """Serve attempts until the worker is gone."""
    if not logging.getLogger().handlers:
        configure_logging(os.environ.get("STAGEPOST_LOG_LEVEL", "INFO"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells everyone; the worker decides
    assignments: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(input_descriptor, assignments), daemon=True).start()
    with os.fdopen(output_descriptor, "wb") as output:
        while True:
            assignment = msgspec.json.decode(assignments.get(), type=Assignment)
            write_frame(output, msgspec.json.encode(_attempt(assignment)))


def _read(descriptor: int, assignments: SimpleQueue[bytes]) -> None:
    with os.fdopen(descriptor, "rb") as pipe:
        while True:
            try:
                assignments.put(read_frame(pipe))
            except EOFError:
                # The worker died: its lease ends, others will run this job, nothing done here would be accepted.
                os._exit(1)


def _attempt(assignment: Assignment) -> Reply:
    job = assignment.job
    try:
        task = _task(assignment)
    except BaseException as error:  # noqa: BLE001 - an import can raise anything
        return Reply(Refused(*describe_error(error)), settled_in_transaction=False)
    context = JobContext(job, task, SystemClock())
    outcome = contextvars.copy_context().run(perform, context, task)
    return Reply(outcome, context.settled_in_transaction)


def perform(context: JobContext, task: Task[..., Any]) -> Outcome:
    """Decode, call, and say what came of it; what runs in this context afterwards runs for this attempt, too."""
    enter(context)
    try:
        args, kwargs = task.signature.decode(context.job.payload)
        if task.wants_context:
            args = (context, *args)
        return context.completed(task.function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome
        return outcome_of(error, context.job, task)


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
