"""`stagepost jobs`: lists, shows, awaits, retries and cancels jobs."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import click
import msgspec

from stagepost.cli.documents import failure_document, job_document, moment_document
from stagepost.cli.errors import ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, duration_text, time_text
from stagepost.cli.options import Group, duration, job_id
from stagepost.cli.render import Output
from stagepost.client.client import default_actor
from stagepost.client.dead_letters import pages_of, retry_each
from stagepost.errors import IllegalTransition, JobNotFound
from stagepost.model.batch import Counts
from stagepost.model.job import FailureRecord, JobRow
from stagepost.model.lifecycle import JobState
from stagepost.model.timeline import Moment, timeline_of
from stagepost.store.activity import actions_on
from stagepost.store.health import ping
from stagepost.store.jobs import get
from stagepost.store.listing import page_of_jobs

__all__ = ["job_rows", "jobs", "show_job"]


@click.group(cls=Group)
def jobs() -> None:
    """List, show, wait for, retry and cancel jobs."""


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
    page = invocation.store.run(
        page_of_jobs(
            states=[JobState(state) for state in states],
            queue_name=queue,
            task_name=task,
            batch_id=parent,
            before=before,
            most=limit,
        )
    )
    now = invocation.store.run(ping())
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
    show_job(invocation, invocation.store.run(get(identifier)))


@jobs.command("wait")
@click.argument("identifier", metavar="JOB_ID", type=job_id)
@click.option("--timeout", type=duration, metavar="DURATION", help="Stop waiting after this time, such as 90s or 15m.")
@click.pass_obj
def wait(invocation: Invocation, *, identifier: str, timeout: timedelta | None) -> None:
    """Wait until a job ends, and print how it ended.

    Exits with 0 if it completed, and with 1 if it ended in another state or the time was too short.
    """
    state = invocation.client.wait(identifier, timeout=timeout)
    document = {"id": identifier, "state": str(state)}
    invocation.output.result(document, lambda: invocation.output.say(f"Job {identifier} ended as {state}."))
    if state not in {JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS}:
        sys.exit(ExitCode.FAILED)


@jobs.command("retry")
@click.argument("identifiers", metavar="JOB_ID...", type=job_id, nargs=-1, required=True)
@click.pass_obj
def retry(invocation: Invocation, *, identifiers: tuple[str, ...]) -> None:
    """Queue ended jobs again, whether they completed, failed or were cancelled."""
    answers: list[Answer] = []
    for page in retry_each(invocation.store, pages_of(identifiers), actor=default_actor()):
        answers += [Answer(job, True, f"Job {job} is queued again.") for job in page.done]
        answers += [Answer(job, False, reason) for job, reason in page.refused.items()]
        answers += [Answer(job, False, _why_not_retried(invocation, job)) for job in page.missing]
    _finish(invocation, answers)


@jobs.command("cancel")
@click.argument("identifiers", metavar="JOB_ID...", type=job_id, nargs=-1, required=True)
@click.pass_obj
def cancel(invocation: Invocation, *, identifiers: tuple[str, ...]) -> None:
    """Cancel jobs and their children; a running job is asked to stop."""
    answers: list[Answer] = []
    for job in identifiers:
        try:
            state = invocation.client.cancel(job)
        except (JobNotFound, IllegalTransition) as error:
            answers.append(Answer(job, False, str(error)))
        else:
            answers.append(Answer(job, True, CANCELLED.get(state, "Job {} is cancelled.").format(job)))
    _finish(invocation, answers)


CANCELLED = {
    JobState.RUNNING: "Job {} is running; its worker has been asked to stop it.",
    JobState.WAITING: "Job {} is being cancelled; it ends when its children have ended.",
}


def show_job(invocation: Invocation, job: JobRow) -> None:
    """Print one job with its failures and timeline."""
    failures = invocation.client.failures(job.id)
    actions = invocation.store.run(actions_on(job.id))
    timeline = timeline_of(job, failures, actions)
    document = job_document(job) | {
        "children": _nonzero(invocation.client.children_of(job.id)),
        "failure_log": [failure_document(failure) for failure in failures],
        "timeline": [moment_document(moment) for moment in timeline],
    }
    invocation.output.result(document, lambda: _show(invocation.output, document, failures, timeline))


def job_rows(found: list[JobRow], *, now: int) -> Section:
    """Lay out jobs as a table."""
    return Section(
        columns=("job", "task", "queue", "state", "attempts", "age", "error"),
        rows=[
            (
                job.id,
                job.task_name,
                job.queue_name,
                job.state,
                f"{job.attempt} ({job.failures} of {job.max_attempts} failed)" if job.failures else str(job.attempt),
                duration_text(now - job.created_at),
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
        job = invocation.client.job(identifier)
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
