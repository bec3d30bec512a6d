"""`stagepost enqueue`: enqueues one job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from stagepost.cli.invocation import Invocation
from stagepost.cli.options import Command, duration, instant
from stagepost.database.migrate import check_schema
from stagepost.errors import ConfigurationError, UnknownTask
from stagepost.model.options import JobOptions
from stagepost.task import Registry, Task

__all__ = ["enqueue"]

KEYWORD = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@click.command(cls=Command, short_help="Enqueue a job.")
@click.argument("task", metavar="TASK")
@click.argument("arguments", metavar="[ARGUMENTS]...", nargs=-1)
@click.option("--delay", type=duration, metavar="DURATION", help="Run the job after this time, such as 90s, 15m or 2h.")
@click.option("--at", type=instant, metavar="TIME", help="Run the job at this time, such as 2026-01-31T18:00:00Z.")
@click.option("--priority", type=int, help="Jobs with a larger priority run first.")
@click.option("--unique-key", help="Enqueue nothing while a live job holds this key.")
@click.option("--queue", help="Use this queue instead of the task's own.")
@click.pass_obj
def enqueue(
    invocation: Invocation,
    *,
    task: str,
    arguments: tuple[str, ...],
    delay: timedelta | None,
    at: datetime | None,
    priority: int | None,
    unique_key: str | None,
    queue: str | None,
) -> None:
    """Enqueue a job of TASK.

    Each argument is a JSON value, or name=VALUE. JSON text needs double quotes, so protect them from the shell:

    \b
      stagepost enqueue myproject.tasks.send_mail '"ada@example.org"' copies=2
    """
    app = invocation.app
    found = _find_task(app.registry, task)
    positional, named = _call_arguments(arguments)
    options = {"delay": delay, "at": at, "priority": priority, "unique_key": unique_key, "queue": queue}
    check_schema(app.store)
    job = found.build(_job_options(options), positional, named)
    enqueued = app.client.enqueue(job)
    document = {"id": enqueued.id, "is_new": enqueued.is_new, "task": job.task_name, "queue": job.queue_name}
    invocation.output.result(document, lambda: invocation.output.say(_sentence(document, unique_key)))


def _sentence(document: dict[str, Any], unique_key: str | None) -> str:
    if document["is_new"]:
        return f"Enqueued job {document['id']} of task {document['task']} in queue {document['queue']}."
    return f"Nothing was enqueued: job {document['id']} already holds unique key {unique_key!r}."


def _job_options(options: dict[str, Any]) -> JobOptions:
    return JobOptions(**{name: value for name, value in options.items() if value is not None})


def _find_task(registry: Registry, name: str) -> Task[..., Any]:
    """Find a task by its full name, or by the end of its name if that is unambiguous."""
    try:
        return registry.get(name)
    except UnknownTask:
        ending = [task for task in registry if task.name.endswith(f".{name}")]
    if len(ending) == 1:
        return ending[0]
    known = ", ".join(sorted(task.name for task in ending or registry)) or "none"
    trouble = "more than one task has a name that ends with" if ending else "the app has no task"
    raise ConfigurationError(f"{trouble} {name!r}. {'They are' if ending else 'Its tasks are'}: {known}.")


def _call_arguments(texts: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for number, text in enumerate(texts, 1):
        match = KEYWORD.fullmatch(text)
        if match is not None:
            named[match[1]] = _value(match[2], f"argument {match[1]}")
        elif named:
            raise click.UsageError(
                f"argument {number} ({text}) has no name but follows a named one. Put arguments without a name first."
            )
        else:
            positional.append(_value(text, f"argument {number}"))
    return tuple(positional), named


def _value(text: str, what: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        quoted = msgspec.json.encode(text).decode()
        raise click.UsageError(f"{what} ({text}) is not JSON. If it is text, write it as '{quoted}'.") from None
