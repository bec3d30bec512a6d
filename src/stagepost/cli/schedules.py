"""`stagepost schedules`: lists, runs, pauses, resumes and removes schedules."""

from __future__ import annotations

from datetime import datetime

import click

from stagepost.cli.documents import instant, schedule_document
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, time_text
from stagepost.cli.options import Group
from stagepost.cli.options import instant as read_instant
from stagepost.operations import Schedule

__all__ = ["schedules"]


@click.group(cls=Group)
def schedules() -> None:
    """List, run, pause and remove schedules."""


@schedules.command("list")
@click.pass_obj
def list_all(invocation: Invocation) -> None:
    """List the schedules that apps have declared."""
    found = invocation.operator.schedules.list()
    section = Section(
        columns=("schedule", "rule", "time zone", "task", "next due", "last due", "state"),
        rows=[
            (
                schedule.name,
                schedule.rule,
                schedule.time_zone,
                schedule.task,
                "never" if schedule.next_due_at is None else time_text(schedule.next_due_at),
                time_text(schedule.last_due_at),
                _state(schedule),
            )
            for schedule in found
        ],
        empty="There are no schedules. A worker adds its app's schedules when it starts.",
    )
    document = {"schedules": [schedule_document(schedule) for schedule in found]}
    invocation.output.result(document, lambda: invocation.output.table(section))


@schedules.command("show")
@click.argument("name", metavar="SCHEDULE")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Maximum number of runs.")
@click.option("--before", type=read_instant, metavar="TIME", help="Continue after this due time.")
@click.pass_obj
def show_one(invocation: Invocation, *, name: str, limit: int, before: datetime | None) -> None:
    """Show a schedule and its latest due times, with the job of each."""
    schedule = invocation.operator.schedules.get(name)
    runs = invocation.operator.schedules.runs(name, before=before, limit=limit)
    document = schedule_document(schedule)
    facts = {key.replace("_", " "): value for key, value in document.items()}
    documents = [
        {"due_at": instant(run.due_at), "job_id": run.job_id, "fired_at": instant(run.fired_at)} for run in runs
    ]
    section = Section(
        columns=("due", "job", "enqueued"),
        rows=[(time_text(run.due_at), run.job_id, time_text(run.fired_at)) for run in runs],
        empty="It has not fired yet.",
    )

    def show() -> None:
        invocation.output.facts({**facts, "state": _state(schedule)})
        invocation.output.heading("Runs")
        invocation.output.table(section)

    invocation.output.result({**document, "runs": documents}, show)


@schedules.command("run")
@click.argument("name", metavar="SCHEDULE")
@click.pass_obj
def run(invocation: Invocation, *, name: str) -> None:
    """Enqueue a schedule's job now, in addition to its due times."""
    enqueued = invocation.operator.schedules.run(name)
    text = f"Enqueued job {enqueued.id} for schedule {name}."
    if not enqueued.is_new:
        text = f"Nothing was enqueued: job {enqueued.id} of schedule {name} has not ended yet."
    document = {"schedule": name, "id": enqueued.id, "is_new": enqueued.is_new}
    invocation.output.result(document, lambda: invocation.output.say(text))


@schedules.command("remove")
@click.argument("name", metavar="SCHEDULE")
@click.pass_obj
def remove(invocation: Invocation, *, name: str) -> None:
    """Remove a schedule that your app no longer declares.

    A schedule that is still declared is created again when the next worker starts.
    """
    invocation.operator.schedules.remove(name)
    invocation.output.result(
        {"schedule": name, "removed": True}, lambda: invocation.output.say(f"Schedule {name} is removed.")
    )


@schedules.command("pause")
@click.argument("name", metavar="SCHEDULE")
@click.pass_obj
def pause(invocation: Invocation, *, name: str) -> None:
    """Stop a schedule from enqueuing jobs until it is resumed."""
    _answer(invocation, invocation.operator.schedules.pause(name), f"Schedule {name} is paused.")


@schedules.command("resume")
@click.argument("name", metavar="SCHEDULE")
@click.pass_obj
def resume(invocation: Invocation, *, name: str) -> None:
    """Continue a paused or orphaned schedule at its next due time."""
    _answer(invocation, invocation.operator.schedules.resume(name), f"Schedule {name} is running.")


def _state(schedule: Schedule) -> str:
    if schedule.paused_at is not None:
        return "paused"
    if schedule.orphaned_at is not None:
        return "orphaned: no running worker declares it"
    return f"cannot fire: {schedule.error}" if schedule.error else "running"


def _answer(invocation: Invocation, schedule: Schedule, text: str) -> None:
    invocation.output.result(schedule_document(schedule), lambda: invocation.output.say(text))
