"""`stagepost jobs`: lists, shows, awaits, retries, cancels and discards jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from stagepost.cli.documents import failure_document, job_document, moment_document
from stagepost.cli.errors import ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, duration_text, time_text
from stagepost.cli.options import Group, confirm, duration, job_id
from stagepost.cli.render import Output
from stagepost.client.bulk import GONE
from stagepost.client.records import Job
from stagepost.errors import IllegalTransition, JobNotFound
from stagepost.model.batch import Counts
from stagepost.model.job import FailureRecord, microseconds
from stagepost.model.lifecycle import FINAL, LIVE, JobState
from stagepost.model.timeline import Moment
from stagepost.operations import BulkResult

__all__ = ["job_rows", "jobs", "show_job"]

MOST_COMPLAINTS = 20


@click.group(cls=Group)
def jobs() -> None:
    """List, show, wait for, retry, cancel and discard jobs."""


@jobs.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([str(state) for state in JobState]),
    help="Show only this state; repeat for more.",
)
@click.option("--queue", help="Show only jobs in this queue.")
@click.option("--task", help="Show only jobs of this task.")
@click.option("--parent", type=job_id, metavar="JOB_ID", help="Show only the children of this job.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show.")
@click.option("--before", type=job_id, metavar="JOB_ID", help="Continue after the last job of the previous page.")
@click.pass_obj
def list_jobs(
    invocation: Invocation,
    *,
    states: tuple[str, ...],
    queue: str | None,
    task: str | None,
    parent: str | None,
    limit: int,
    before: str | None,
) -> None:
    """List jobs, newest first.

    With millions of jobs, a rare combination is searched for only among the newest. The output then says how to
    continue the search.
    """
    page = invocation.operator.jobs.page(
        states=states, queue=queue, task=task, parent_id=parent, before=before, limit=limit
    )
    now = invocation.now()
    output = invocation.output

    def show() -> None:
        output.table(job_rows(page.jobs, now=now))
        if page.next_before is not None:
            output.remark(f"There may be more. Continue with --before {page.next_before}")

    output.result({"jobs": [job_document(job) for job in page.jobs], "next_before": page.next_before}, show)


@jobs.command("show")
@click.argument("identifier", metavar="JOB_ID", type=job_id)
@click.pass_obj
def show_one(invocation: Invocation, *, identifier: str) -> None:
    """Show a job's fields, arguments, failures and timeline."""
    show_job(invocation, invocation.operator.client.job(identifier))


def _selection(states: Iterable[JobState]) -> Callable[[Any], Any]:
    """Add the argument and options that select jobs, by ids or by filters."""

    def decorate(function: Any) -> Any:
        for decorator in (
            click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation of a filter."),
            click.option(
                "--older-than", type=duration, metavar="DURATION",
                help="Select only jobs that were enqueued at least this long ago, such as 90s, 15m or 7d.",
            ),
            click.option("--task", help="Select jobs of this task."),
            click.option("--queue", help="Select jobs in this queue."),
            click.option(
                "--state", "states", multiple=True, type=click.Choice(sorted(map(str, states))),
                help="Select only this state; repeat for more.",
            ),
            click.argument("identifiers", metavar="[JOB_ID]...", type=job_id, nargs=-1),
        ):  # fmt: skip
            function = decorator(function)
        return function

    return decorate


@jobs.command("wait")
@click.argument("identifier", metavar="JOB_ID", type=job_id)
@click.option("--timeout", type=duration, metavar="DURATION", help="Stop waiting after this time, such as 90s or 15m.")
@click.pass_obj
def wait(invocation: Invocation, *, identifier: str, timeout: timedelta | None) -> None:
    """Wait until a job ends, and print how it ended.

    Exits with 0 if it completed, and with 1 if it ended in another state or the time was too short.
    """
    state = invocation.operator.client.wait(identifier, timeout=timeout)
    document = {"id": identifier, "state": str(state)}
    invocation.output.result(document, lambda: invocation.output.say(f"Job {identifier} ended as {state}."))
    if state not in {JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS}:
        sys.exit(ExitCode.FAILED)


@jobs.command("retry")
@_selection(FINAL)
@click.pass_obj
def retry(invocation: Invocation, /, *, identifiers: tuple[str, ...], is_sure: bool, **filters: Any) -> None:
    """Queue ended jobs again, whether they completed, failed or were cancelled.

    Select them by their ids, or by filters. Filters select failed jobs unless --state says otherwise.
    """
    if identifiers:
        _retry_each(invocation, identifiers, filters)
        return
    _act_on_all(invocation, invocation.operator.jobs.retry_all, filters, is_sure, "Queue", "again", "queued again")


def _retry_each(invocation: Invocation, identifiers: tuple[str, ...], filters: dict[str, Any]) -> None:
    _refuse_both(filters)
    result = invocation.operator.jobs.retry_all(*identifiers)
    answers = []
    for job in dict.fromkeys(identifiers):
        if job not in result.reasons:
            answers.append(Answer(job, True, f"Job {job} is queued again."))
        elif GONE.format(job) == result.reasons[job]:
            answers.append(Answer(job, False, _why_not_retried(invocation, job)))
        else:
            answers.append(Answer(job, False, result.reasons[job]))
    _finish(invocation, answers)


@jobs.command("cancel")
@_selection(LIVE)
@click.pass_obj
def cancel(invocation: Invocation, /, *, identifiers: tuple[str, ...], is_sure: bool, **filters: Any) -> None:
    """Cancel jobs and their children; a running job is asked to stop.

    Select them by their ids, or by filters.
    """
    if not identifiers:
        _act_on_all(invocation, invocation.operator.jobs.cancel_all, filters, is_sure, "Cancel", "", "cancelled")
        return
    _refuse_both(filters)
    answers: list[Answer] = []
    for job in identifiers:
        try:
            state = invocation.operator.client.cancel(job)
        except (JobNotFound, IllegalTransition) as error:
            answers.append(Answer(job, False, str(error)))
        else:
            answers.append(Answer(job, True, CANCELLED.get(state, "Job {} is cancelled.").format(job)))
    _finish(invocation, answers)


CANCELLED = {
    JobState.RUNNING: "Job {} is running; its worker has been asked to stop it.",
    JobState.WAITING: "Job {} is being cancelled; it ends when its children have ended.",
}


@jobs.command("discard")
@_selection(FINAL)
@click.pass_obj
def discard(invocation: Invocation, /, *, identifiers: tuple[str, ...], is_sure: bool, **filters: Any) -> None:
    """Delete ended jobs and their history permanently; skip those that unfinished work depends on.

    Select them by their ids, or by filters.
    """
    if not identifiers:
        act = invocation.operator.jobs.discard_all
        _act_on_all(invocation, act, filters, is_sure, "Delete", "permanently", "deleted")
        return
    _refuse_both(filters)
    confirm(f"Delete {_number(len(set(identifiers)))} permanently?", is_sure=is_sure)
    _tell(invocation, invocation.operator.jobs.discard_all(*identifiers), "deleted")


def _act_on_all(
    invocation: Invocation,
    act: Callable[..., BulkResult],
    filters: dict[str, Any],
    is_sure: bool,
    verb: str,
    how: str,
    done_as: str,
) -> None:
    """Act on all jobs that match the filters, after confirmation; exit with 1 if any was skipped."""
    given = {name: value for name, value in filters.items() if value not in (None, ())}
    if not given:
        raise click.UsageError("Select jobs by their ids, or with --queue, --task, --state or --older-than.")
    shown = ", ".join(f"{name.replace('_', '-')} {_listed(value)}" for name, value in given.items())
    confirm(f"{' '.join(filter(None, (verb, 'all jobs with', shown, how)))}?", is_sure=is_sure)
    _tell(invocation, act(**given), done_as)


def _tell(invocation: Invocation, result: BulkResult, done_as: str) -> None:
    text = f"{_number(result.done).capitalize()} {'is' if result.done == 1 else 'are'} {done_as}."
    refused = [{"id": one, "reason": reason} for one, reason in result.reasons.items()]
    document = {"done": result.done, "skipped": result.skipped, "refused": refused}
    invocation.output.result(document, lambda: invocation.output.say(text))
    for reason in list(result.reasons.values())[:MOST_COMPLAINTS]:
        invocation.output.warn(f"stagepost: {reason}")
    if result.skipped:
        sys.exit(ExitCode.FAILED)


def _refuse_both(filters: dict[str, Any]) -> None:
    if any(value not in (None, ()) for value in filters.values()):
        raise click.UsageError("Select jobs by their ids or with filters, not both.")


def _listed(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _number(number: int) -> str:
    return "one job" if number == 1 else f"{number:,} jobs"


def show_job(invocation: Invocation, job: Job) -> None:
    """Print one job with its failures and timeline."""
    failures = invocation.operator.client.failures(job.id)
    timeline = invocation.operator.jobs.timeline(job.id)
    document = job_document(job) | {
        "children": _nonzero(invocation.operator.client.children_of(job.id)),
        "failure_log": [failure_document(failure) for failure in failures],
        "timeline": [moment_document(moment) for moment in timeline],
    }
    invocation.output.result(document, lambda: _show(invocation.output, document, failures, timeline))


def job_rows(found: list[Job], *, now: datetime) -> Section:
    """Lay out jobs as a table."""
    return Section(
        columns=("job", "task", "queue", "state", "attempts", "age", "error"),
        rows=[
            (
                job.id,
                job.task,
                job.queue,
                job.state,
                f"{job.attempt} ({job.failures} of {job.max_attempts} failed)" if job.failures else str(job.attempt),
                duration_text(microseconds(now - job.created_at)),
                (job.error or "")[:100],
            )
            for job in found
        ],
        numbers=frozenset({"age"}),
        empty="There are no such jobs.",
    )


def _show(output: Output, document: dict[str, Any], failures: list[FailureRecord], timeline: list[Moment]) -> None:
    hidden = {"failure_log", "timeline"}
    if (document["first_task"], document["first_arguments"]) == (document["task"], document["arguments"]):
        hidden |= {"first_task", "first_arguments"}
    facts = {name.replace("_", " "): _text(value) for name, value in document.items() if name not in hidden}
    output.facts(facts)
    output.heading("What happened")
    rows = [(time_text(moment.at), moment.what, (moment.detail or "")[:200]) for moment in timeline]
    output.table(Section(columns=("time", "what", "detail"), rows=rows))
    for failure in failures:
        output.heading(f"Attempt {failure.attempt} {failure.kind}: {failure.error.splitlines()[0][:200]}")
        output.say(failure.traceback or failure.error)


def _nonzero(counts: Counts) -> dict[str, int] | None:
    found = {str(state): number for state in JobState if (number := getattr(counts, state))}
    return found or None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _why_not_retried(invocation: Invocation, identifier: str) -> str:
    try:
        job = invocation.operator.client.job(identifier)
    except JobNotFound as error:
        return str(error)
    return f"job {identifier} is {job.state}: only ended jobs can be queued again."


class Answer(msgspec.Struct, frozen=True):
    """The result of a request for one job."""

    id: str
    ok: bool
    message: str


def _finish(invocation: Invocation, answers: list[Answer]) -> None:
    """Print what was done and what was not; exit with 1 if any request failed."""
    output = invocation.output

    def show() -> None:
        for answer in answers:
            if answer.ok:
                output.say(answer.message)

    output.result({"jobs": answers}, show)
    for answer in answers:
        if not answer.ok:
            output.warn(f"stagepost: {answer.message}")
    if not all(answer.ok for answer in answers):
        sys.exit(ExitCode.FAILED)
