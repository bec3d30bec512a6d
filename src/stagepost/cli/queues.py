"""`stagepost queues`: lists, pauses, resumes, limits and recounts queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from stagepost.cli.documents import queue_document
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, duration_text
from stagepost.cli.options import Group
from stagepost.errors import ConfigurationError
from stagepost.model.checks import check_name, known_names
from stagepost.model.job import microseconds
from stagepost.model.lifecycle import JobState
from stagepost.operations import Queue
from stagepost.store.counting import PARTS
from stagepost.store.queues import ALL_QUEUES, list_queues
from stagepost.store.workers import list_workers

__all__ = ["queue_rows", "queues"]

STATES = (JobState.QUEUED, JobState.RUNNING, JobState.RETRYING, JobState.SCHEDULED, JobState.BLOCKED, JobState.WAITING)
OFF = "off"
new_option = click.option("--new", "is_new", is_flag=True, help="Accept a queue that is not in use yet.")


@click.group(cls=Group)
def queues() -> None:
    """List, pause and limit queues.

    Use the name * for all queues together.
    """


@queues.command("list")
@click.pass_obj
def list_all(invocation: Invocation) -> None:
    """List the queues that have jobs or settings."""
    found = invocation.operator.queues.list()
    document = {"queues": [queue_document(queue) for queue in found]}
    invocation.output.result(document, lambda: invocation.output.table(queue_rows(found)))


@queues.command("show")
@click.argument("name", metavar="QUEUE")
@click.pass_obj
def show_one(invocation: Invocation, *, name: str) -> None:
    """Show a queue's jobs, lag and settings."""
    found = invocation.operator.queues.get(name)
    invocation.output.result(queue_document(found), lambda: invocation.output.table(queue_rows([found])))


@queues.command("pause")
@click.argument("name", metavar="QUEUE")
@new_option
@click.pass_obj
def pause_one(invocation: Invocation, *, name: str, is_new: bool) -> None:
    """Stop starting jobs of a queue; running jobs continue."""
    _check_known(invocation, name, is_new=is_new)
    _answer(invocation, invocation.operator.queues.pause(name), f"{_title(name)} paused.")


@queues.command("resume")
@click.argument("name", metavar="QUEUE")
@click.pass_obj
def resume_one(invocation: Invocation, *, name: str) -> None:
    """Start jobs of a paused queue again."""
    _check_known(invocation, name, is_new=False)
    _answer(invocation, invocation.operator.queues.resume(name), f"{_title(name)} running.")


def number_or_off(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make a parser for a number or `off`."""

    def read(value: str) -> Any:
        if value.lower() == OFF:
            return OFF
        try:
            return convert(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is neither a number nor `off`.") from None

    return read


@queues.command("limit")
@click.argument("name", metavar="QUEUE")
@click.option(
    "--max-running", type=number_or_off(int), metavar="N|off", help="Maximum number of jobs that run at once."
)
@click.option(
    "--rate", type=number_or_off(float), metavar="N|off", help="Maximum number of jobs that start per second."
)
@click.option(
    "--burst", type=click.IntRange(min=1), metavar="N",
    help="Maximum number of jobs that start at once after an idle period. [default: one second's worth]",
)  # fmt: skip
@new_option
@click.pass_obj
def limit(
    invocation: Invocation,
    *,
    name: str,
    max_running: int | str | None,
    rate: float | str | None,
    burst: int | None,
    is_new: bool,
) -> None:
    """Limit how many jobs of a queue run at once and start per second, across all workers.

    Limits that you do not name keep their values.
    """
    if max_running is None and rate is None and burst is None:
        raise click.UsageError("Give at least one limit: --max-running, --rate or --burst.")
    _check_known(invocation, name, is_new=is_new)
    given = {"max_running": max_running, "per_second": rate, "burst": burst}
    limits: dict[str, Any] = {
        limit: None if value == OFF else value for limit, value in given.items() if value is not None
    }
    changed = invocation.operator.queues.limit(name, **limits)
    _answer(invocation, changed, f"{_title(name)} limited: {_limits_text(changed) or 'no limits'}.")


@queues.command("recount")
@click.pass_obj
def recount(invocation: Invocation) -> None:
    """Compare the stored counts with the actual rows, and correct them.

    Workers do this continuously, one part every ten minutes, but skip a part with more than ten million rows.
    """
    output = invocation.output
    with output.progress("Counting", len(PARTS)) as bar:
        drifts = invocation.operator.queues.recount(on_progress=lambda done, _all: bar.move_to(done))
    section = Section(
        columns=("queue", "counted as", "counted", "found"),
        rows=[(drift.scope.removeprefix("queue:"), drift.class_name, drift.counted, drift.found) for drift in drifts],
        numbers=frozenset({"counted", "found"}),
        empty="All counts are right.",
    )
    output.result({"corrected": drifts}, lambda: output.table(section))


def _check_known(invocation: Invocation, name: str, *, is_new: bool) -> None:
    """Refuse a queue that is probably misspelt: no job, setting, worker or task of the app uses it."""
    if name != ALL_QUEUES:
        check_name("queue", name)
    known = {queue.name for queue in invocation.store.run(list_queues())}
    known |= {served for worker in invocation.store.run(list_workers()) for served in worker.queues}
    known |= set(invocation.app.registry.queues) if invocation.has_app else set()
    if not is_new and name not in {*known, ALL_QUEUES}:
        raise ConfigurationError(
            f"queue {name!r} is not known: it has no jobs, settings or workers. {known_names(name, known)} "
            f"With --new, the command accepts a queue that is not in use yet."
        )


def queue_rows(found: Sequence[Queue]) -> Section:
    """Lay out queues as a table."""
    return Section(
        title="Queues",
        columns=("queue", *STATES, "oldest waits", "settings"),
        rows=[
            (
                queue.name,
                *[queue.jobs.get(state, 0) for state in STATES],
                None if queue.lag is None else duration_text(microseconds(queue.lag)),
                _settings_text(queue),
            )
            for queue in found
        ],
        numbers=frozenset({*map(str, STATES), "oldest waits"}),
        empty="No queue has live jobs or settings.",
    )


def _settings_text(queue: Queue) -> str:
    return ", ".join(filter(None, ("paused" if queue.paused_at is not None else "", _limits_text(queue))))


def _limits_text(queue: Queue) -> str:
    parts = [] if queue.max_running is None else [f"at most {queue.max_running} running"]
    if queue.per_second is not None:
        parts.append(f"{queue.per_second:g} per second, bursts of {queue.burst}")
    return ", ".join(parts)


def _title(name: str) -> str:
    return "All queues are" if name == ALL_QUEUES else f"Queue {name} is"


def _answer(invocation: Invocation, queue: Queue, text: str) -> None:
    document = queue_document(queue)
    del document["jobs"], document["lag_seconds"]
    invocation.output.result(document, lambda: invocation.output.say(text))
