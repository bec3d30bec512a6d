"""Queries for displaying a pipeline run: its steps, their progress and their results."""

from __future__ import annotations

from datetime import datetime

import msgspec

from stagepost.database.statement import Statements, query
from stagepost.errors import RunError, shortened
from stagepost.model.batch import Counts
from stagepost.model.job import JobRow, to_datetime
from stagepost.model.pipeline import OnStepFailed, Run, RunState, StepPlan, StepRecord, StepState
from stagepost.store.counting import count_items
from stagepost.store.run_steps import latest_jobs
from stagepost.store.runs import get

__all__ = ["RunView", "StepResults", "StepView", "results_of", "run_view"]


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a run. Times are aware datetimes in UTC."""

    name: str
    """Its name."""
    task: str
    """Name of its task."""
    state: StepState
    """Its state."""
    parents: tuple[str, ...]
    """Names of the steps that it waits for."""
    is_list: bool
    """Whether the step has one job for each element of a list."""
    on_failed: OnStepFailed
    """What a failed job of it does to the run."""
    items: int | None
    """How many jobs the step consists of; None until it starts."""
    starts: int
    """How often the step's jobs were enqueued; more than once if the run was retried."""
    counts: Counts
    """The step's jobs by state, including those that completed before a retry."""
    error: str | None
    """Why it failed."""
    started_at: datetime | None
    """When its first jobs were enqueued."""
    ended_at: datetime | None
    """When it ended."""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its steps, each after its parents. Times are aware datetimes in UTC."""

    id: str
    """Its id, a UUID."""
    key: str
    """The key that it was started with, or its id."""
    pipeline: str
    """Name of its pipeline."""
    state: RunState
    """Its state."""
    starts: int
    """How often it was started: more than once if it was retried."""
    error: str | None
    """Why it failed."""
    cancelled_at: datetime | None
    """When it was cancelled."""
    created_at: datetime
    """When it was started."""
    ended_at: datetime | None
    """When it ended."""
    steps: tuple[StepView, ...]
    """Its steps."""


class StepResults(msgspec.Struct, frozen=True):
    """How a step ended, and its jobs in the order of their elements."""

    state: StepState
    error: str | None
    is_list: bool
    jobs: tuple[JobRow, ...]


@query
def run_view(run_id: str) -> Statements[RunView]:
    """Read a run and count the jobs of its steps."""
    run = yield from get(run_id)
    views: list[StepView] = []
    for step in run.plan.steps:
        views.append((yield from _view(step, run.steps[step.name])))
    return view_of(run, tuple(views))


def view_of(run: Run, steps: tuple[StepView, ...]) -> RunView:
    """Copy a run without the fields that only the store needs."""
    return RunView(
        id=run.id,
        key=run.key,
        pipeline=run.pipeline,
        state=run.state,
        starts=run.starts,
        error=run.error,
        cancelled_at=to_datetime(run.cancelled_at),
        created_at=to_datetime(run.created_at),
        ended_at=to_datetime(run.ended_at),
        steps=steps,
    )


def _view(step: StepPlan, record: StepRecord) -> Statements[StepView]:
    counts = Counts()
    for batch_id in record.batches:
        now = yield from count_items(batch_id)
        # Jobs that failed in an earlier start ran again in the next one; jobs that completed did not.
        counts = msgspec.structs.replace(
            now,
            completed=counts.completed + now.completed,
            completed_with_errors=counts.completed_with_errors + now.completed_with_errors,
            waived=counts.waived + now.waived,
        )
    return StepView(
        name=step.name,
        task=step.task_name,
        state=record.state,
        parents=step.parents,
        is_list=step.each is not None,
        on_failed=step.on_failed,
        items=record.items,
        starts=len(record.batches),
        counts=counts,
        error=record.error,
        started_at=to_datetime(record.started_at),
        ended_at=to_datetime(record.ended_at),
    )


@query
def results_of(run_id: str, name: str) -> Statements[StepResults]:
    """Read how a step ended, and the latest job of each element."""
    run = yield from get(run_id)
    step = next((step for step in run.plan.steps if step.name == name), None)
    if step is None:
        names = ", ".join(repr(step.name) for step in run.plan.steps)
        raise RunError(run_id, f"pipeline {run.pipeline!r} has no step {shortened(repr(name))}. Its steps are {names}.")
    record = run.steps[name]
    found = yield from latest_jobs(record.batches)
    jobs = tuple(found[position] for position in range(record.items or 0) if position in found)
    if record.state is StepState.COMPLETED and len(jobs) < (record.items or 0):
        raise RunError(run_id, f"results of step {name!r} were discarded, or pruned from history.")
    return StepResults(record.state, record.error, step.each is not None, jobs)
