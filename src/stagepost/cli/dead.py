"""`stagepost dead`: lists dead jobs and messages, grouped by reason; retries or discards them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from stagepost.cli.documents import dead_message_document, instant, job_document
from stagepost.cli.errors import CommandFailed, ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.jobs import show_job
from stagepost.cli.layout import Section, time_text
from stagepost.cli.options import Group, confirm, job_id
from stagepost.client.client import default_actor
from stagepost.client.dead_letters import (
    Handled,
    discard_each,
    discard_messages,
    group_id,
    message_pages_matching,
    pages_matching,
    pages_of,
    require_dead,
    retry_each,
    retry_messages,
)
from stagepost.database.store import Store
from stagepost.model.dead_letter import DeadMessage
from stagepost.model.job import JobRow
from stagepost.store.counting import count_by_state
from stagepost.store.dead_messages import (
    DeadMessageGroup,
    count_dead_messages,
    dead_message_groups,
    dead_messages,
    find_dead_message,
)
from stagepost.store.history import DEAD, DeadLetterGroup, dead_letter_groups, dead_letters
from stagepost.store.jobs import get

__all__ = ["dead"]

MOST_GROUPS = 10_000
MOST_COMPLAINTS = 20
AnyGroup = DeadLetterGroup | DeadMessageGroup


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
    message = invocation.store.run(find_dead_message(identifier))
    if message is not None:
        document = dead_message_document(message)
        facts = {name.replace("_", " "): value for name, value in document.items()}
        invocation.output.result(document, lambda: invocation.output.facts(facts))
        return
    job = invocation.store.run(get(identifier))
    if job.state not in DEAD:
        raise CommandFailed(f"Job {identifier} is {job.state}, not a dead letter. Use `stagepost jobs show` to see it.")
    show_job(invocation, job)


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
        click.option("--group", metavar="GROUP", help="Select all of one group, as named by `dead list`."),
        click.argument("identifiers", metavar="[ID]...", type=job_id, nargs=-1),
    ):
        function = decorator(function)
    return function


@dead.command("retry")
@_selection
@click.pass_obj
def retry(
    invocation: Invocation, *, identifiers: tuple[str, ...], group: str | None, everything: bool, is_sure: bool
) -> None:
    """Queue jobs again with a full set of attempts; send messages back to the queue they came from."""
    chosen = _choose(invocation.store, identifiers, group, everything=everything)
    if not identifiers and chosen.number:
        confirm(f"Queue {chosen.text} again?", is_sure=is_sure)
    _handle(invocation, chosen, retry_each, retry_messages, label="Retrying", done_as="queued again")


@dead.command("discard")
@_selection
@click.pass_obj
def discard(
    invocation: Invocation, *, identifiers: tuple[str, ...], group: str | None, everything: bool, is_sure: bool
) -> None:
    """Delete dead letters and their history permanently; skip any that unfinished work depends on."""
    chosen = _choose(invocation.store, identifiers, group, everything=everything)
    if chosen.number:
        confirm(f"Delete {chosen.text} permanently?", is_sure=is_sure)
    _handle(invocation, chosen, discard_each, discard_messages, label="Discarding", done_as="deleted")


@dataclass(frozen=True)
class Chosen:
    """The selected dead letters, and how many there were at the time of selection."""

    jobs: Iterator[list[str]]
    messages: Iterator[list[str]]
    number: int
    text: str


def _choose(store: Store, identifiers: tuple[str, ...], group: str | None, *, everything: bool) -> Chosen:
    if sum((bool(identifiers), group is not None, everything)) != 1:
        raise click.UsageError("Select dead letters by id, with --group GROUP or with --all.")
    nothing: Iterator[list[str]] = iter(())
    if identifiers:
        messages = [one for one in identifiers if store.run(find_dead_message(one)) is not None]
        jobs = [one for one in identifiers if one not in messages]
        require_dead(store, jobs)
        return Chosen(pages_of(jobs), pages_of(messages), len(identifiers), _letters(len(identifiers)))
    if group is not None:
        found = _find_group(store, group)
        if isinstance(found, DeadMessageGroup):
            pages = message_pages_matching(store, queue=found.queue, reason=found.reason)
            text = f"{_letters(found.messages)} of {_place(found)} ({found.reason})"
            return Chosen(nothing, pages, found.messages, text)
        pages = pages_matching(store, task_name=found.task_name, reason=found.reason)
        return Chosen(pages, nothing, found.jobs, f"{_letters(found.jobs)} of task {found.task_name} ({found.reason})")
    counts = store.run(count_by_state())
    number = sum(counts[state] for state in DEAD) + store.run(count_dead_messages())
    return Chosen(pages_matching(store), message_pages_matching(store), number, f"all {_letters(number)}")


Act = Callable[..., Iterator[Handled]]


def _handle(
    invocation: Invocation, chosen: Chosen, on_jobs: Act, on_messages: Act, *, label: str, done_as: str
) -> None:
    done = 0
    refused: dict[str, str] = {}
    with invocation.output.progress(label, chosen.number) as bar:
        for act, pages in ((on_jobs, chosen.jobs), (on_messages, chosen.messages)):
            for page in act(invocation.store, pages, actor=default_actor()):
                done += len(page.done)
                refused |= page.refused
                refused |= {one: f"{one} no longer exists, or has not ended." for one in page.missing}
                bar.move_to(done + len(refused))
    text = "One dead letter is" if done == 1 else f"{done:,} dead letters are"
    document = {"done": done, "refused": [{"id": one, "reason": reason} for one, reason in refused.items()]}
    invocation.output.result(document, lambda: invocation.output.say(f"{text} {done_as}."))
    _complain(invocation, refused)
    if refused:
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
    documents = [_group_document(group) for group in _groups(invocation.store, limit)]
    section = Section(
        columns=("group", "kind", "number", "of", "first", "last", "reason"),
        rows=[
            (
                one["group"], one["kind"], one["jobs"], one["task"] or one["queue"], time_text(first), time_text(last),
                one["reason"],
            )
            for one, first, last in documents
        ],
        numbers=frozenset({"number"}),
        empty="There are no dead letters.",
    )  # fmt: skip
    invocation.output.result({"groups": [one for one, _, _ in documents]}, lambda: invocation.output.table(section))


def _groups(store: Store, limit: int) -> list[AnyGroup]:
    """Find groups of jobs and of messages, largest first."""
    found: list[AnyGroup] = [*store.run(dead_letter_groups(most=limit)), *store.run(dead_message_groups(most=limit))]
    return sorted(found, key=_size, reverse=True)[:limit]


def _size(group: AnyGroup) -> int:
    return group.jobs if isinstance(group, DeadLetterGroup) else group.messages


def _place(group: DeadMessageGroup) -> str:
    return f"queue {group.queue}" if group.queue else "unknown origin"


def _group_document(group: AnyGroup) -> tuple[dict[str, Any], int, int]:
    is_job = isinstance(group, DeadLetterGroup)
    document = {
        "group": group_id(group),
        "kind": "jobs" if is_job else "messages",
        "task": group.task_name if isinstance(group, DeadLetterGroup) else None,
        "queue": None if isinstance(group, DeadLetterGroup) else group.queue,
        "reason": group.reason,
        "jobs": _size(group),
        "first_at": instant(group.first_at),
        "last_at": instant(group.last_at),
    }
    return document, group.first_at, group.last_at


def _list_singly(invocation: Invocation, group: str | None, limit: int, before: str | None) -> None:
    store, output = invocation.store, invocation.output
    found = _find(store, group, limit, None if before is None else _moment_of(invocation, before))
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
        "jobs": [{"kind": "job"} | job_document(one) for one in found if isinstance(one, JobRow)],
        "messages": [dead_message_document(one) for one in found if isinstance(one, DeadMessage)],
        "next_before": following,
    }
    output.result(document, show)


def _find(store: Store, group: str | None, limit: int, before: tuple[int, str] | None) -> list[JobRow | DeadMessage]:
    """Find dead letters of all groups or of one, most recent first."""
    chosen = None if group is None else _find_group(store, group)
    found: list[JobRow | DeadMessage] = []
    if chosen is None or isinstance(chosen, DeadLetterGroup):
        task_name, reason = (None, None) if chosen is None else (chosen.task_name, chosen.reason)
        found += store.run(dead_letters(task_name=task_name, reason=reason, before=before, most=limit))
    if chosen is None or isinstance(chosen, DeadMessageGroup):
        queue, reason = (None, None) if chosen is None else (chosen.queue, chosen.reason)
        found += store.run(dead_messages(queue=queue, reason=reason, before=before, most=limit))
    return sorted(found, key=_moment, reverse=True)[:limit]


def _moment(one: JobRow | DeadMessage) -> tuple[int, str]:
    return (one.finished_at or 0 if isinstance(one, JobRow) else one.received_at), one.id


def _moment_of(invocation: Invocation, identifier: str) -> tuple[int, str]:
    message = invocation.store.run(find_dead_message(identifier))
    return _moment(invocation.store.run(get(identifier)) if message is None else message)


def _row(one: JobRow | DeadMessage) -> tuple[object, ...]:
    if isinstance(one, JobRow):
        ended = time_text(one.finished_at)
        return one.id, "job", one.task_name, one.state, one.attempt, ended, (one.error or "")[:100]
    return one.id, "message", one.queue, None, None, time_text(one.received_at), one.error[:100]


def _find_group(store: Store, name: str) -> AnyGroup:
    for group in _groups(store, MOST_GROUPS):
        if group_id(group) == name:
            return group
    raise CommandFailed(f"There is no group {name!r} of dead letters. Run `stagepost dead list` to see all groups.")


def _letters(number: int) -> str:
    return "1 dead letter" if number == 1 else f"{number:,} dead letters"
