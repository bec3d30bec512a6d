"""`stagepost schedules`: lists, runs, pauses, resumes and removes schedules."""

from __future__ import annotations

import click

from stagepost.cli.documents import schedule_document
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, time_text
from stagepost.cli.options import Group
from stagepost.client.client import default_actor
from stagepost.store.schedules import (
    NEVER,
    Schedule,
    list_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_now,
)

__all__ = ["schedules"]


@click.group(cls=Group)
def schedules() -> None:
    """List, run, pause and remove schedules."""


@schedules.command("list")
@click.pass_obj
def list_all(invocation: Invocation) -> None:
    """List the schedules that apps have declared."""
    found = invocation.store.run(list_schedules())
    section = Section(
        columns=("schedule", "rule", "time zone", "task", "next due", "last due", "state"),
        rows=[
            (
                schedule.name,
                schedule.rule,
                schedule.time_zone,
                schedule.task_name,
                "never" if schedule.next_due_at >= NEVER else time_text(schedule.next_due_at),
                time_text(schedule.last_due_at),
                _state(schedule),
            )
            for schedule in found
        ],
        empty="There are no schedules. A worker adds its app's schedules when it starts.",
    )
    document = {"schedules": [schedule_document(schedule) for schedule in found]}
    invocation.output.result(document, lambda: invocation.output.table(section))


@schedules.command("run")
@click.argument("name", metavar="SCHEDULE")
@click.pass_obj
def run(invocation: Invocation, *, name: str) -> None:
    """Enqueue a schedule's job now, in addition to its due times."""
    enqueued = invocation.store.run(run_now(name, actor=default_actor()))
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
    invocation.store.run(remove_schedule(name, actor=default_actor()))
    invocation.output.result(
        {"schedule": name, "removed": True}, lambda: invocation.output.say(f"Schedule {name} is removed.")
    )


@schedules.command("pause")
@click.argument("name", metavar="SCHEDULE")
@click.pass_obj
def pause(invocation: Invocation, *, name: str) -> None:
    """Stop a schedule from enqueuing jobs until it is resumed."""
    invocation.store.run(pause_schedule(name, actor=default_actor()))
    _answer(invocation, name, f"Schedule {name} is paused.")


@schedules.command("resume")
@click.argument("name", metavar="SCHEDULE")
@click.pass_obj
def resume(invocation: Invocation, *, name: str) -> None:
    """Continue a paused or orphaned schedule at its next due time."""
    invocation.store.run(resume_schedule(name, actor=default_actor()))
    _answer(invocation, name, f"Schedule {name} is running.")


def _state(schedule: Schedule) -> str:
    if schedule.paused_at is not None:
        return "paused"
    if schedule.orphaned_at is not None:
        return "orphaned: no running worker declares it"
    return f"cannot fire: {schedule.error}" if schedule.error else "running"


def _answer(invocation: Invocation, name: str, text: str) -> None:
    [found] = [schedule for schedule in invocation.store.run(list_schedules()) if schedule.name == name]
    invocation.output.result(schedule_document(found), lambda: invocation.output.say(text))
