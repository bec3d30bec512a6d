"""`stagepost dead`: lists dead jobs and messages, grouped by reason; retries or discards them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import click

from stagepost.cli.documents import dead_message_document, instant, job_document
from stagepost.cli.errors import CommandFailed, ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.jobs import show_job
from stagepost.cli.layout import Section, time_text
from stagepost.cli.options import Group, confirm, job_id
from stagepost.client.records import Job
from stagepost.errors import IllegalTransition
from stagepost.operations import BulkResult, DeadLetterGroup, DeadMessage

__all__ = ["dead"]

MOST_COMPLAINTS = 20


@click.group(cls=Group)
def dead() -> None:
    """List, show, retry and discard permanently failed jobs and unusable messages."""


@dead.command("list")
@click.option("--group", metavar="GROUP", help="List the entries of one group instead of the groups.")
@click.option("--jobs", "singly", is_flag=True, help="List jobs and messages instead of groups, most recent first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show.")
@click.option("--before", type=job_id, metavar="ID", help="Continue after the last entry of the previous page.")
@click.pass_obj
def list_dead(invocation: Invocation, *, group: str | None, singly: bool, limit: int, before: str | None) -> None:
    """List dead letters, grouped by reason and by task (jobs) or queue (messages)."""
    if group is not None or singly or before is not None:
        _list_singly(invocation, group, limit, before)
    else:
        _list_groups(invocation, limit)


@dead.command("show")
@click.argument("identifier", metavar="ID", type=job_id)
@click.pass_obj
def show_one(invocation: Invocation, *, identifier: str) -> None:
    """Show one dead letter: the traceback of every attempt of a job, or the body of a message."""
    try:
        letter = invocation.operator.dead_letters.get(identifier)
    except IllegalTransition as error:
        raise CommandFailed(
            f"Job {identifier} is {error.state}, not a dead letter. Use `stagepost jobs show` to see it."
        ) from None
    if isinstance(letter, Job):
        show_job(invocation, letter)
        return
    document = dead_message_document(letter)
    facts = {name.replace("_", " "): value for name, value in document.items()}
    invocation.output.result(document, lambda: invocation.output.facts(facts))


@dead.command("group")
@click.argument("group", metavar="GROUP")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show.")
@click.option("--before", type=job_id, metavar="ID", help="Continue after the last entry of the previous page.")
@click.pass_obj
def show_group(invocation: Invocation, *, group: str, limit: int, before: str | None) -> None:
    """List the entries of one group, most recent first. The same as `dead list --group`."""
    _list_singly(invocation, group, limit, before)


def _selection(function: Any) -> Any:
    """Add the argument and options that select dead letters."""
    for decorator in (
        click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation."),
        click.option("--all", "everything", is_flag=True, help="Select all dead letters."),
        click.option("--queue", help="Select all dead jobs of this queue."),
        click.option("--task", help="Select all dead jobs of this task."),
        click.option("--group", metavar="GROUP", help="Select all of one group, as named by `dead list`."),
        click.argument("identifiers", metavar="[ID]...", type=job_id, nargs=-1),
    ):
        function = decorator(function)
    return function


@dead.command("retry")
@_selection
@click.pass_obj
def retry(invocation: Invocation, /, *, identifiers: tuple[str, ...], is_sure: bool, **selection: Any) -> None:
    """Queue jobs again with a full set of attempts; send messages back to the queue they came from."""
    number, text = _choose(invocation, identifiers, **selection)
    if not identifiers and number:
        confirm(f"Queue {text} again?", is_sure=is_sure)
    act = invocation.operator.dead_letters.retry
    _handle(invocation, act, identifiers, selection, number, label="Retrying", done_as="queued again")


@dead.command("discard")
@_selection
@click.pass_obj
def discard(invocation: Invocation, /, *, identifiers: tuple[str, ...], is_sure: bool, **selection: Any) -> None:
    """Delete dead letters and their history permanently; skip any that unfinished work depends on."""
    number, text = _choose(invocation, identifiers, **selection)
    if number:
        confirm(f"Delete {text} permanently?", is_sure=is_sure)
    act = invocation.operator.dead_letters.discard
    _handle(invocation, act, identifiers, selection, number, label="Discarding", done_as="deleted")


def _choose(
    invocation: Invocation,
    identifiers: tuple[str, ...],
    *,
    group: str | None,
    task: str | None,
    queue: str | None,
    everything: bool,
) -> tuple[int, str]:
    """Check the selection, and say how many dead letters it has at most, and which."""
    letters = invocation.operator.dead_letters
    has_filter = task is not None or queue is not None
    if sum((bool(identifiers), group is not None, has_filter, everything)) != 1:
        raise click.UsageError("Select dead letters by id, with --group GROUP, with --task or --queue, or with --all.")
    if identifiers:
        for one in identifiers:  # before the question: a typing mistake must not be confirmed
            letters.get(one)
        return len(identifiers), _letters(len(identifiers))
    if group is not None:
        found = letters.group(group)
        return found.number, f"{_letters(found.number)} of {_place(found)} ({found.reason})"
    number = letters.count()
    if has_filter:
        places = (("task", task), ("queue", queue))
        where = " and ".join(f"{what} {name}" for what, name in places if name is not None)
        return number, f"all dead jobs of {where}"
    return number, f"all {_letters(number)}"


def _handle(
    invocation: Invocation,
    act: Callable[..., BulkResult],
    identifiers: tuple[str, ...],
    selection: Mapping[str, Any],
    number: int,
    *,
    label: str,
    done_as: str,
) -> None:
    with invocation.output.progress(label, number) as bar:
        result = act(*identifiers, **selection, on_progress=lambda so_far: bar.move_to(so_far.done + so_far.skipped))
    text = "One dead letter is" if result.done == 1 else f"{result.done:,} dead letters are"
    refused = dict(result.reasons)
    document = {"done": result.done, "refused": [{"id": one, "reason": reason} for one, reason in refused.items()]}
    invocation.output.result(document, lambda: invocation.output.say(f"{text} {done_as}."))
    _complain(invocation, refused)
    if result.skipped:
        sys.exit(ExitCode.FAILED)


def _complain(invocation: Invocation, refused: dict[str, str]) -> None:
    """Print what was skipped and why, one line per reason."""
    reasons = Counter(refused.values())
    for reason, number in list(reasons.items())[:MOST_COMPLAINTS]:
        text = reason if any(one in reason for one in refused) else f"Skipped {_letters(number)}. {reason}"
        invocation.output.warn(f"stagepost: {text}")
    if len(reasons) > MOST_COMPLAINTS:
        left = sum(number for _, number in list(reasons.items())[MOST_COMPLAINTS:])
        invocation.output.warn(f"stagepost: … and {left:,} more.")


def _list_groups(invocation: Invocation, limit: int) -> None:
    groups = invocation.operator.dead_letters.groups(limit=limit)
    section = Section(
        columns=("group", "kind", "number", "of", "first", "last", "reason"),
        rows=[
            (
                one.id, one.kind, one.number, one.task or one.queue, time_text(one.first_at), time_text(one.last_at),
                one.reason,
            )
            for one in groups
        ],
        numbers=frozenset({"number"}),
        empty="There are no dead letters.",
    )  # fmt: skip
    document = {"groups": [_group_document(one) for one in groups]}
    invocation.output.result(document, lambda: invocation.output.table(section))


def _place(group: DeadLetterGroup) -> str:
    if group.kind == "jobs":
        return f"task {group.task}"
    return f"queue {group.queue}" if group.queue else "unknown origin"


def _group_document(group: DeadLetterGroup) -> dict[str, Any]:
    return {
        "group": group.id,
        "kind": group.kind,
        "task": group.task,
        "queue": group.queue,
        "reason": group.reason,
        "jobs": group.number,
        "first_at": instant(group.first_at),
        "last_at": instant(group.last_at),
    }


def _list_singly(invocation: Invocation, group: str | None, limit: int, before: str | None) -> None:
    output = invocation.output
    found = invocation.operator.dead_letters.page(group=group, before=before, limit=limit)
    following = found[-1].id if len(found) == limit else None
    section = Section(
        columns=("id", "kind", "of", "state", "attempts", "ended", "error"),
        rows=[_row(one) for one in found],
        numbers=frozenset({"attempts"}),
        empty="There are no such dead letters.",
    )

    def show() -> None:
        output.table(section)
        if following is not None:
            output.remark(f"There may be more. Continue with --before {following}")

    document = {
        "jobs": [{"kind": "job"} | job_document(one) for one in found if isinstance(one, Job)],
        "messages": [dead_message_document(one) for one in found if isinstance(one, DeadMessage)],
        "next_before": following,
    }
    output.result(document, show)


def _row(one: Job | DeadMessage) -> tuple[object, ...]:
    if isinstance(one, Job):
        return one.id, "job", one.task, one.state, one.attempt, time_text(one.finished_at), (one.error or "")[:100]
    return one.id, "message", one.queue, None, None, time_text(one.received_at), one.error[:100]


def _letters(number: int) -> str:
    return "1 dead letter" if number == 1 else f"{number:,} dead letters"
