"""`stagepost runs`: lists, shows, watches, retries and cancels runs of pipelines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import click

from stagepost.cli.documents import run_document, run_view_document
from stagepost.cli.errors import ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, duration_text, time_text
from stagepost.cli.options import Group
from stagepost.clock import sleep
from stagepost.model.job import microseconds
from stagepost.model.pipeline import RunState, StepState
from stagepost.operations import RunSummary
from stagepost.store.run_views import RunView, StepView

__all__ = ["runs"]

BAR_CELLS = 20
SUCCESSES = frozenset({RunState.COMPLETED, RunState.RUNNING})


def run_id(value: str) -> str:
    """Parse a run's id and normalize it to the form that the database stores."""
    try:
        return str(UUID(value))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a run id. Run `stagepost runs list` to see ids.") from None


@click.group(cls=Group)
def runs() -> None:
    """List, show, watch, retry and cancel runs of pipelines."""


@runs.command("list")
@click.option("--pipeline", help="Show only runs of this pipeline.")
@click.option("--state", type=click.Choice([str(state) for state in RunState]), help="Show only this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show.")
@click.option("--before", type=run_id, metavar="RUN_ID", help="Continue after the last run of the previous page.")
@click.pass_obj
def list_all(
    invocation: Invocation, *, pipeline: str | None, state: str | None, limit: int, before: str | None
) -> None:
    """List runs, newest first."""
    found = invocation.operator.runs.page(pipeline=pipeline, state=state, before=before, limit=limit)
    following = found[-1].id if len(found) == limit else None
    now = invocation.now()
    output = invocation.output

    def show() -> None:
        output.table(_run_rows(found, now=now))
        if following is not None:
            output.remark(f"There may be more. Continue with --before {following}")

    output.result({"runs": [run_document(run) for run in found], "next_before": following}, show)


@runs.command("show")
@click.argument("identifier", metavar="RUN_ID", type=run_id)
@click.pass_obj
def show_one(invocation: Invocation, *, identifier: str) -> None:
    """Show a run and the progress of each step."""
    view = invocation.operator.runs.get(identifier).graph()
    output = invocation.output

    def show() -> None:
        output.facts(
            {
                "run": view.id,
                "pipeline": view.pipeline,
                "key": view.key,
                "state": view.state,
                "starts": view.starts,
                "error": view.error,
                "created": time_text(view.created_at),
                "ended": time_text(view.ended_at),
            }
        )
        output.heading("Statements")
        output.table(_step_rows(view))

    output.result(run_view_document(view), show)


@runs.command("watch")
@click.argument("identifier", metavar="RUN_ID", type=run_id)
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=1.0, show_default=True, metavar="SECONDS",
    help="Time between refreshes.",
)  # fmt: skip
@click.pass_obj
def watch(invocation: Invocation, *, identifier: str, interval: float) -> None:
    """Watch a run until it ends, with a bar for each step. Exits with 1 unless the run completed."""
    run, output = invocation.operator.runs.get(identifier), invocation.output
    shown: RunView | None = None
    with output.screen() as show, contextlib.suppress(KeyboardInterrupt):
        while True:
            view = run.graph()
            if view != shown:
                if output.as_json:
                    output.document_line(run_view_document(view))
                else:
                    show(f"Run {view.id} of {view.pipeline} ({view.key}): {view.state}", [_step_rows(view)])
            shown = view
            if view.state is not RunState.RUNNING:
                break
            sleep(interval)
    if shown is not None and shown.state not in SUCCESSES:
        sys.exit(ExitCode.FAILED)


@runs.command("retry")
@click.argument("identifier", metavar="RUN_ID", type=run_id)
@click.pass_obj
def retry_one(invocation: Invocation, *, identifier: str) -> None:
    """Continue a run that failed or was cancelled; completed work is not run again."""
    handle = invocation.operator.runs.get(identifier)
    handle.retry()
    run = handle.graph()
    texts = {
        RunState.RUNNING: f"Run {run.id} is running again.",
        RunState.COMPLETED: f"Run {run.id} has completed; there is nothing to retry.",
    }
    text = texts.get(run.state, f"Run {run.id} is {run.state} again: {run.error}")
    invocation.output.result(run_document(run), lambda: invocation.output.say(text))
    if run.state not in SUCCESSES:
        sys.exit(ExitCode.FAILED)


@runs.command("cancel")
@click.argument("identifier", metavar="RUN_ID", type=run_id)
@click.pass_obj
def cancel_one(invocation: Invocation, *, identifier: str) -> None:
    """Cancel a run: start no more steps, cancel waiting jobs and ask running ones to stop."""
    handle = invocation.operator.runs.get(identifier)
    handle.cancel()
    run = handle.graph()
    text = f"Run {run.id} is {run.state}."
    if run.state is RunState.RUNNING:
        text = f"Run {run.id} is cancelled; it ends when its running jobs have stopped."
    invocation.output.result(run_document(run), lambda: invocation.output.say(text))


def _run_rows(found: Sequence[RunSummary], *, now: datetime) -> Section:
    return Section(
        columns=("run", "pipeline", "key", "state", "steps", "age", "error"),
        rows=[
            (
                run.id,
                run.pipeline,
                None if run.key == run.id else run.key,
                run.state,
                f"{sum(state is StepState.COMPLETED for state in run.steps.values())} of {len(run.steps)}",
                duration_text(microseconds(now - run.created_at)),
                (run.error or "")[:100],
            )
            for run in found
        ],
        numbers=frozenset({"age"}),
        empty="There are no such runs.",
    )


def _step_rows(view: RunView) -> Section:
    return Section(
        columns=("step", "after", "state", "progress", "failed", "error"),
        rows=[
            (
                step.name,
                ", ".join(step.parents),
                step.state,
                _bar(step),
                step.counts.failures + step.counts.cancelled,
                (step.error or "")[:100],
            )
            for step in view.steps
        ],
        title="Statements",
        numbers=frozenset({"failed"}),
    )


def _bar(step: StepView) -> str:
    if step.items is None:
        return "·" * BAR_CELLS
    done = step.counts.completed + step.counts.completed_with_errors + step.counts.waived
    share = done / step.items if step.items else 1.0
    return f"{'█' * round(share * BAR_CELLS):░<{BAR_CELLS}} {done:,}/{step.items:,}"
