"""`stagepost queues`: lists, pauses, resumes, limits and recounts queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from stagepost.cli.documents import queue_document
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, duration_text
from stagepost.cli.options import Group
from stagepost.client.client import default_actor
from stagepost.database.migrate import check_schema
from stagepost.errors import ConfigurationError
from stagepost.model.checks import check_name, known_names
from stagepost.model.lifecycle import JobState
from stagepost.store.counting import PARTS, Drift, find_drift, repair
from stagepost.store.queues import (
    ALL_QUEUES,
    Queue,
    QueueLimits,
    list_queues,
    pause,
    queue_settings,
    resume,
    set_limits,
)
from stagepost.store.workers import list_workers

__all__ = ["queue_rows", "queues"]

STATES = (JobState.QUEUED, JobState.RUNNING, JobState.RETRYING, JobState.SCHEDULED, JobState.BLOCKED, JobState.WAITING)
OFF = "off"
RECOUNT_SECONDS = 3600.0
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
    found = invocation.store.run(list_queues())
    document = {"queues": [queue_document(queue) for queue in found]}
    invocation.output.result(document, lambda: invocation.output.table(queue_rows(found)))


@queues.command("pause")
@click.argument("name", metavar="QUEUE")
@new_option
@click.pass_obj
def pause_one(invocation: Invocation, *, name: str, is_new: bool) -> None:
    """Stop starting jobs of a queue; running jobs continue."""
    _check_known(invocation, name, is_new=is_new)
    invocation.store.run(pause(name, actor=default_actor()))
    _answer(invocation, name, f"{_title(name)} paused.")


@queues.command("resume")
@click.argument("name", metavar="QUEUE")
@click.pass_obj
def resume_one(invocation: Invocation, *, name: str) -> None:
    """Start jobs of a paused queue again."""
    _check_known(invocation, name, is_new=False)
    invocation.store.run(resume(name, actor=default_actor()))
    _answer(invocation, name, f"{_title(name)} running.")


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
    known = invocation.store.run(queue_settings([name]))[name]
    limits = _limits(known, max_running=max_running, rate=rate, burst=burst)
    invocation.store.run(set_limits(name, **limits, actor=default_actor()))
    changed = invocation.store.run(queue_settings([name]))[name]
    _answer(invocation, name, f"{_title(name)} limited: {_limits_text(changed) or 'no limits'}.")


@queues.command("recount")
@click.pass_obj
def recount(invocation: Invocation) -> None:
    """Compare the stored counts with the actual rows, and correct them.

    Workers do this continuously, one part every ten minutes, but skip a part with more than ten million rows.
    """
    output, store = invocation.output, invocation.open_store()
    store.call_seconds = RECOUNT_SECONDS
    drifts: list[Drift] = []
    try:
        check_schema(store)
        with output.progress("Counting", len(PARTS)) as bar:
            for done, part in enumerate(PARTS, start=1):
                if store.run(find_drift(part)):  # without a lock, which only a repair needs
                    drifts += store.run(repair(part))
                bar.move_to(done)
    finally:
        store.close()
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


def queue_rows(found: list[Queue]) -> Section:
    """Lay out queues as a table."""
    return Section(
        title="Queues",
        columns=("queue", *STATES, "oldest waits", "settings"),
        rows=[
            (
                queue.name,
                *[queue.counts.get(state, 0) for state in STATES],
                None if queue.lag_us is None else duration_text(queue.lag_us),
                _settings_text(queue.settings),
            )
            for queue in found
        ],
        numbers=frozenset({*map(str, STATES), "oldest waits"}),
        empty="No queue has live jobs or settings.",
    )


def _limits(known: QueueLimits, *, max_running: Any, rate: Any, burst: int | None) -> dict[str, Any]:
    """Merge the given limits with the current ones."""
    old_rate = None if known.rate is None else known.rate.per_second
    old_burst = None if known.rate is None or rate is not None else known.rate.burst
    new_rate = old_rate if rate is None else None if rate == OFF else rate
    return {
        "max_running": known.max_running if max_running is None else None if max_running == OFF else max_running,
        "rate": new_rate,
        "burst": None if new_rate is None else burst or old_burst,
    }


def _settings_text(settings: QueueLimits) -> str:
    return ", ".join(filter(None, ("paused" if settings.paused_at is not None else "", _limits_text(settings))))


def _limits_text(settings: QueueLimits) -> str:
    parts = [] if settings.max_running is None else [f"at most {settings.max_running} running"]
    if settings.rate is not None:
        parts.append(f"{settings.rate.per_second:g} per second, bursts of {settings.rate.burst}")
    return ", ".join(parts)


def _title(name: str) -> str:
    return "All queues are" if name == ALL_QUEUES else f"Queue {name} is"


def _answer(invocation: Invocation, name: str, text: str) -> None:
    settings = invocation.store.run(queue_settings([name]))[name]
    document = queue_document(Queue(name, {}, None, settings))
    del document["jobs"], document["lag_seconds"]
    invocation.output.result(document, lambda: invocation.output.say(text))
