"""`stagepost dead`: looks at what failed for good, grouped by reason; retries or discards it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from stagepost.cli.documents import instant, job_document
from stagepost.cli.errors import CommandFailed, ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.jobs import job_rows, show_job
from stagepost.cli.options import Group, confirm, job_id
from stagepost.cli.render import Section, time_text
from stagepost.client.client import default_actor
from stagepost.client.dead_letters import (
    Handled,
    discard_each,
    group_id,
    pages_matching,
    pages_of,
    require_dead,
    retry_each,
)
from stagepost.store.counting import count_by_state
from stagepost.store.health import ping
from stagepost.store.history import DEAD, DeadLetterGroup, dead_letter_groups, dead_letters
from stagepost.store.store import Store

__all__ = ["dead"]

MOST_GROUPS = 10_000
MOST_COMPLAINTS = 20


@click.group(cls=Group)
def dead() -> None:
    """Look at jobs that failed for good, retry them, discard them."""


@dead.command("list")
@click.option("--group", metavar="GROUP", help="List the jobs of one group instead of the groups.")
@click.option("--jobs", "as_jobs", is_flag=True, help="List jobs instead of groups, last ended first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@click.option("--before", type=job_id, metavar="JOB_ID", help="Go on after the last job of the page before.")
@click.pass_obj
def list_dead(invocation: Invocation, *, group: str | None, as_jobs: bool, limit: int, before: str | None) -> None:
    """List dead letters by what they have in common: their task and reason."""
    if group is not None or as_jobs or before is not None:
        _list_jobs(invocation, group, limit, before)
    else:
        _list_groups(invocation, limit)


@dead.command("show")
@click.argument("identifier", metavar="JOB_ID", type=job_id)
@click.pass_obj
def show_one(invocation: Invocation, *, identifier: str) -> None:
    """Show all there is to know of a dead letter, with the traceback of every attempt."""
    job = invocation.client.job(identifier)
    if job.state not in DEAD:
        raise CommandFailed(f"Job {identifier} is {job.state}, no dead letter. `stagepost jobs show` shows it.")
    show_job(invocation, job)


def _selection(function: Any) -> Any:
    """Add the ways to say which dead letters are meant."""
    for decorator in (
        click.option("--yes", "is_sure", is_flag=True, help="Do not ask."),
        click.option("--all", "everything", is_flag=True, help="All dead letters there are."),
        click.option("--group", metavar="GROUP", help="All of one group, as `dead list` names it."),
        click.argument("identifiers", metavar="[JOB_ID]...", type=job_id, nargs=-1),
    ):
        function = decorator(function)
    return function


@dead.command("retry")
@_selection
@click.pass_obj
def retry(
    invocation: Invocation, *, identifiers: tuple[str, ...], group: str | None, everything: bool, is_sure: bool
) -> None:
    """Queue dead letters again, with all their attempts before them."""
    chosen = _choose(invocation.store, identifiers, group, everything=everything)
    if not identifiers and chosen.number:
        confirm(f"Queue {chosen.text} again?", is_sure=is_sure)
    _handle(invocation, chosen, retry_each, label="Retrying", done_as="queued again")


@dead.command("discard")
@_selection
@click.pass_obj
def discard(
    invocation: Invocation, *, identifiers: tuple[str, ...], group: str | None, everything: bool, is_sure: bool
) -> None:
    """Delete dead letters for good, with all that is known of them."""
    chosen = _choose(invocation.store, identifiers, group, everything=everything)
    if chosen.number:
        confirm(f"Delete {chosen.text} for good?", is_sure=is_sure)
    _handle(invocation, chosen, discard_each, label="Discarding", done_as="deleted")


@dataclass(frozen=True)
class Chosen:
    """Which dead letters are meant, and how many there were when that was asked."""

    pages: Iterator[list[str]]
    number: int
    text: str


def _choose(store: Store, identifiers: tuple[str, ...], group: str | None, *, everything: bool) -> Chosen:
    if sum((bool(identifiers), group is not None, everything)) != 1:
        raise click.UsageError("Say which: job ids, --group GROUP, or --all.")
    if identifiers:
        require_dead(store, identifiers)
        return Chosen(pages_of(identifiers), len(identifiers), _letters(len(identifiers)))
    if group is not None:
        found = _find_group(store, group)
        pages = pages_matching(store, task_name=found.task_name, reason=found.reason)
        return Chosen(pages, found.jobs, f"{_letters(found.jobs)} of task {found.task_name} ({found.reason})")
    counts = store.run(count_by_state())
    number = sum(counts[state] for state in DEAD)
    return Chosen(pages_matching(store), number, f"all {_letters(number)}")


def _handle(
    invocation: Invocation,
    chosen: Chosen,
    act: Callable[..., Iterator[Handled]],
    *,
    label: str,
    done_as: str,
) -> None:
    done = 0
    refused: dict[str, str] = {}
    with invocation.output.progress(label, chosen.number) as bar:
        for page in act(invocation.store, chosen.pages, actor=default_actor()):
            done += len(page.done)
            refused |= page.refused
            refused |= {job: f"Job {job} is not there any more, or has not ended." for job in page.missing}
            bar.move_to(done + len(refused))
    text = "One dead letter is" if done == 1 else f"{done:,} dead letters are"
    document = {"done": done, "refused": [{"id": job, "reason": reason} for job, reason in refused.items()]}
    invocation.output.result(document, lambda: invocation.output.say(f"{text} {done_as}."))
    for reason in list(refused.values())[:MOST_COMPLAINTS]:
        invocation.output.warn(f"stagepost: {reason}")
    if len(refused) > MOST_COMPLAINTS:
        invocation.output.warn(f"stagepost: … and {len(refused) - MOST_COMPLAINTS:,} more.")
    if refused:
        sys.exit(ExitCode.FAILED)


def _list_groups(invocation: Invocation, limit: int) -> None:
    groups = invocation.store.run(dead_letter_groups(most=limit))
    section = Section(
        columns=("group", "jobs", "task", "first", "last", "reason"),
        rows=[
            (group_id(g), g.jobs, g.task_name, time_text(g.first_at), time_text(g.last_at), g.reason) for g in groups
        ],
        numbers=frozenset({"jobs"}),
        empty="There are no dead letters.",
    )  # fmt: skip
    documents = [
        {
            "group": group_id(group),
            "task": group.task_name,
            "reason": group.reason,
            "jobs": group.jobs,
            "first_at": instant(group.first_at),
            "last_at": instant(group.last_at),
        }
        for group in groups
    ]
    invocation.output.result({"groups": documents}, lambda: invocation.output.table(section))


def _list_jobs(invocation: Invocation, group: str | None, limit: int, before: str | None) -> None:
    store, output = invocation.store, invocation.output
    found = None if group is None else _find_group(store, group)
    last = None if before is None else invocation.client.job(before)
    jobs = store.run(
        dead_letters(
            task_name=None if found is None else found.task_name,
            reason=None if found is None else found.reason,
            before=None if last is None else (last.finished_at or 0, last.id),
            most=limit,
        )
    )
    following = jobs[-1].id if len(jobs) == limit else None
    now = store.run(ping())

    def show() -> None:
        output.table(job_rows(jobs, now=now))
        if following is not None:
            output.remark(f"There may be more. Go on with --before {following}")

    output.result({"jobs": [job_document(job) for job in jobs], "next_before": following}, show)


def _find_group(store: Store, name: str) -> DeadLetterGroup:
    for group in store.run(dead_letter_groups(most=MOST_GROUPS)):
        if group_id(group) == name:
            return group
    raise CommandFailed(f"There is no group {name!r} of dead letters. `stagepost dead list` shows those there are.")


def _letters(number: int) -> str:
    return "1 dead letter" if number == 1 else f"{number:,} dead letters"
