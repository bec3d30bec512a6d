"""`stagepost batches`: lists and watches batches; retries, waives and cancels their items."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from stagepost.cli.documents import batch_document, instant
from stagepost.cli.errors import ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, bar_text, duration_text, time_text
from stagepost.cli.options import Group, confirm, job_id
from stagepost.client.batches import BatchHandle
from stagepost.client.records import Batch, Job
from stagepost.clock import sleep
from stagepost.model.batch import BatchState, Progress, summary_of
from stagepost.model.job import microseconds
from stagepost.model.lifecycle import JobState
from stagepost.operations import BatchProgress

__all__ = ["batches"]

WINDOW = timedelta(seconds=10)
"""The period over which `watch` averages the rate."""


@click.group(cls=Group)
def batches() -> None:
    """List and watch batches; retry, waive and cancel their items."""


key_argument = click.argument("key", metavar="KEY")


@batches.command("list")
@click.option("--state", type=click.Choice([str(state) for state in BatchState]), help="Show only this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show.")
@click.option("--before", type=job_id, metavar="ID", help="Continue after the last batch of the previous page.")
@click.pass_obj
def list_all(invocation: Invocation, *, state: str | None, limit: int, before: str | None) -> None:
    """List batches, newest first."""
    output = invocation.output
    wanted = None if state is None else BatchState(state)
    found = invocation.operator.batches.page(state=wanted, before=before, limit=limit)
    now = invocation.now()
    following = found[-1].batch.id if len(found) == limit else None

    def show() -> None:
        output.table(_batch_rows(found, now=now))
        if following is not None:
            output.remark(f"There may be more. Continue with --before {following}")

    documents = [batch_document(one.batch, one.progress) for one in found]
    output.result({"batches": documents, "next_before": following}, show)


@batches.command("show")
@key_argument
@click.pass_obj
def show_one(invocation: Invocation, *, key: str) -> None:
    """Show a batch's progress, its average rate since the start, and its counts by state."""
    batch, progress = _look(_handle(invocation, key))
    output = invocation.output

    def show() -> None:
        output.say(_line(batch, progress))
        output.say()
        output.facts(
            {
                "key": batch.key,
                "id": batch.id,
                "state": batch.state if batch.outcome is None else f"{batch.state}, {batch.outcome}",
                "gate": batch.gate,
                "failed items": {"hold": "hold the batch until they are retried or waived"}.get(batch.on_failed),
                "created": time_text(batch.created_at),
                "sealed": time_text(batch.sealed_at),
                "cancelled": time_text(batch.cancelled_at),
                "done": time_text(batch.done_at),
            }
        )
        output.heading("Items")
        counts = progress.counts
        output.table(
            Section(
                columns=("state", "items"),
                rows=[(name, getattr(counts, name)) for name in counts.__struct_fields__ if getattr(counts, name)],
                numbers=frozenset({"items"}),
                empty="There are none yet.",
            )
        )

    output.result(batch_document(batch, progress), show)


@batches.command("watch")
@key_argument
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=1.0, show_default=True, metavar="SECONDS",
    help="Time between refreshes.",
)  # fmt: skip
@click.pass_obj
def watch(invocation: Invocation, *, key: str, interval: float) -> None:
    """Watch a batch until it is done, with its rate over the last ten seconds. Exits with 1 unless it completed."""
    handle, output = _handle(invocation, key), invocation.output
    seen: list[Progress] = []
    with output.screen() as show, contextlib.suppress(KeyboardInterrupt):
        while True:
            batch, progress = _look(handle, seen[0] if seen else None)
            if output.as_json:
                output.document_line(batch_document(batch, progress))
            else:
                show(_line(batch, progress), [])
            if batch.state is BatchState.DONE:
                break
            seen = [one for one in seen if progress.at - one.at <= WINDOW] + [progress]
            sleep(interval)
        if batch.outcome is not JobState.COMPLETED:
            sys.exit(ExitCode.FAILED)


@batches.command("failed")
@key_argument
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of groups to show."
)
@click.pass_obj
def show_failed(invocation: Invocation, *, key: str, limit: int) -> None:
    """Group the failed items of a batch by their reason."""
    groups = _handle(invocation, key).failed(limit=limit)
    section = Section(
        columns=("items", "task", "state", "such as", "last", "reason"),
        rows=[(g.items, g.task, g.state, g.example_key, time_text(g.last_at), g.reason) for g in groups],
        numbers=frozenset({"items"}),
        empty="No item has failed.",
    )
    documents = [
        {
            "items": group.items,
            "task": group.task,
            "state": str(group.state),
            "example_key": group.example_key,
            "reason": group.reason,
            "last_at": instant(group.last_at),
        }
        for group in groups
    ]
    invocation.output.result({"groups": documents}, lambda: invocation.output.table(section))


@batches.command("items")
@key_argument
@click.option(
    "--state", "states", type=click.Choice([str(state) for state in JobState]), multiple=True,
    help="Show only this state; repeat for more.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show.")
@click.option("--before", type=job_id, metavar="JOB_ID", help="Continue after the last item of the previous page.")
@click.option(
    "--export", type=click.Path(dir_okay=False, writable=True, path_type=Path), metavar="FILE",
    help="Write all items to a file instead, one JSON object per line.",
)  # fmt: skip
@click.pass_obj
def list_some(
    invocation: Invocation, *, key: str, states: tuple[str, ...], limit: int, before: str | None, export: Path | None
) -> None:
    """List the items of a batch with their results and errors, in no particular order."""
    handle, output = _handle(invocation, key), invocation.output
    wanted = [JobState(state) for state in states]
    if export is not None:
        written = handle.export(export, wanted)
        output.result({"written": written}, lambda: output.say(f"{_items(written)} written to {export}."))
        return
    batch_id = handle.stored().id
    jobs = invocation.operator.client.jobs(states=wanted, parent_id=batch_id, before=before, limit=limit)
    following = jobs[-1].id if len(jobs) == limit else None

    def show() -> None:
        output.table(_item_rows(jobs))
        if following is not None:
            output.remark(f"There may be more. Continue with --before {following}")

    output.result({"items": [_item_document(job) for job in jobs], "next_before": following}, show)


def _selection(function: Any) -> Any:
    """Add the argument and options that select items."""
    for decorator in (
        click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation."),
        click.option("--all", "everything", is_flag=True, help="Select all failed items of the batch."),
        click.argument("items", metavar="[ITEM_KEY]...", nargs=-1),
        key_argument,
    ):
        function = decorator(function)
    return function


@batches.command("retry")
@_selection
@click.pass_obj
def retry(invocation: Invocation, *, key: str, items: tuple[str, ...], everything: bool, is_sure: bool) -> None:
    """Queue failed items of a batch again."""
    handle = _handle(invocation, key)
    _act(
        invocation, handle, items, everything=everything, is_sure=is_sure,
        question="Queue {} in batch {} again?", act=handle.retry, done_as="queued again",
    )  # fmt: skip


@batches.command("waive")
@_selection
@click.option("--why", metavar="TEXT", help="The reason, which is recorded with your name. Required.")
@click.pass_obj
def waive(
    invocation: Invocation, *, key: str, items: tuple[str, ...], everything: bool, is_sure: bool, why: str | None
) -> None:
    """Let a batch continue without its failed items."""
    if not why:
        raise click.UsageError("Give a reason with --why TEXT. It is recorded with your name.")
    handle = _handle(invocation, key)
    _act(
        invocation, handle, items, everything=everything, is_sure=is_sure,
        question="Let batch {1} continue without {0}?", act=lambda keys: handle.waive(keys, why=why), done_as="waived",
    )  # fmt: skip


@batches.command("cancel")
@key_argument
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def cancel(invocation: Invocation, *, key: str, is_sure: bool) -> None:
    """Cancel a batch: accept no more items, cancel waiting ones and ask running ones to stop."""
    handle = _handle(invocation, key)
    batch, progress = _look(handle)
    if batch.state is not BatchState.DONE:
        confirm(f"Cancel batch {key} ({summary_of(batch.state, progress.counts)})?", is_sure=is_sure)
    handle.cancel()
    batch, progress = _look(handle)
    text = f"Batch {key} is cancelled; it is done when its running items have stopped."
    if batch.state is BatchState.DONE:
        is_new = batch.outcome is JobState.CANCELLED
        text = f"Batch {key} is cancelled." if is_new else f"Batch {key} was already done: {batch.outcome}."
    invocation.output.result(batch_document(batch, progress), lambda: invocation.output.say(text))


@batches.command("recount")
@key_argument
@click.pass_obj
def recount(invocation: Invocation, *, key: str) -> None:
    """Compare a batch's stored counts with its items, and correct them."""
    drifts = _handle(invocation, key).recount()
    output = invocation.output
    section = Section(
        columns=("items that are", "counted", "found"),
        rows=[(drift.class_name, drift.counted, drift.found) for drift in drifts],
        numbers=frozenset({"counted", "found"}),
        empty="The counts are right.",
    )
    documents = [{"class": one.class_name, "counted": one.counted, "found": one.found} for one in drifts]

    def show() -> None:
        output.table(section)
        if drifts:
            output.remark("The counts have been corrected.")

    output.result({"repaired": documents}, show)


def _act(
    invocation: Invocation,
    handle: BatchHandle,
    items: tuple[str, ...],
    *,
    everything: bool,
    is_sure: bool,
    question: str,
    act: Callable[[tuple[str, ...] | None], int],
    done_as: str,
) -> None:
    """Act on the named items, or on all failed ones after confirmation; exit with 1 if any item was refused."""
    if bool(items) is everything:
        raise click.UsageError("Select items by their keys, or all failed items with --all.")
    if everything:
        failures = handle.counts().failures
        if failures:
            which = "the item" if failures == 1 else f"all {failures:,} items"
            confirm(question.format(f"{which} that failed", handle.key), is_sure=is_sure)
    done = act(items or None)
    left = len(set(items)) - done if items else 0
    output = invocation.output
    verb = "is" if done == 1 else "are"
    output.result({"done": done, "refused": left}, lambda: output.say(f"{_items(done).capitalize()} {verb} {done_as}."))
    if left:
        output.warn(f"stagepost: {_items(left)} of those named did not fail, or are not in batch {handle.key}.")
        sys.exit(ExitCode.FAILED)


def _handle(invocation: Invocation, key: str) -> BatchHandle:
    """Open a handle to the batch through the user's app if there is one, otherwise through the database alone."""
    return invocation.operator.batch(key)


def _look(handle: BatchHandle, since: Progress | None = None) -> tuple[Batch, Progress]:
    progress = handle.progress(since)  # first, so that the state is never older than the counts
    batch = handle.stored()
    if batch.state is BatchState.DONE and progress.state is not BatchState.DONE:
        progress = handle.progress(since)  # it ended between the two reads
    return batch, progress


def _line(batch: Batch, progress: Progress) -> str:
    """Format a batch's progress: a bar, counts, rate and ETA."""
    rate = f", {progress.per_second:,.1f} a second" if progress.per_second else ""
    eta = f", done in about {duration_text(microseconds(progress.eta))}" if progress.eta is not None else ""
    state = batch.state if batch.outcome is None else batch.outcome
    return (
        f"{batch.key}  {bar_text(progress.fraction)} {progress.fraction:6.1%}  {state}: "
        f"{summary_of(batch.state, progress.counts)}{rate}{eta}"
    )


def _batch_rows(found: Sequence[BatchProgress], *, now: datetime) -> Section:
    return Section(
        columns=("key", "state", "gate", "progress", "items", "failed", "age", "id"),
        rows=[
            (
                one.batch.key,
                one.batch.state if one.batch.outcome is None else one.batch.outcome,
                one.batch.gate,
                bar_text(one.progress.fraction, cells=10),
                one.progress.total,
                one.progress.counts.failures,
                duration_text(microseconds(now - one.batch.created_at)),
                one.batch.id,
            )
            for one in found
        ],
        numbers=frozenset({"items", "failed", "age"}),
        empty="There are no such batches.",
    )


def _item_rows(jobs: Sequence[Job]) -> Section:
    return Section(
        columns=("key", "state", "attempt", "result", "error", "job"),
        rows=[
            (job.item_key, job.state, job.attempt, _short(job.result), (job.error or "")[:100], job.id) for job in jobs
        ],
        numbers=frozenset({"attempt"}),
        empty="There are no such items.",
    )


def _short(result: Any) -> str:
    return "" if result is None else msgspec.json.encode(result).decode()[:60]


def _item_document(job: Job) -> dict[str, Any]:
    return {
        "key": job.item_key,
        "state": str(job.state),
        "attempt": job.attempt,
        "result": job.result,
        "error": job.error,
        "job_id": job.id,
    }


def _items(number: int) -> str:
    return "one item" if number == 1 else f"{number:,} items"
