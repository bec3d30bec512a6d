"""Advances a pipeline run: when a step ends, the steps that depend on it start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from stagepost.database.statement import Statement, Statements, as_json
from stagepost.model.batch import BatchKind, BatchRow, Counts, Item, NewBatch, item_id
from stagepost.model.identity import new_id
from stagepost.model.job import JobRow, NewJob
from stagepost.model.lifecycle import JobState
from stagepost.model.pipeline import (
    CannotCompose,
    Plan,
    Run,
    RunState,
    StepPlan,
    StepRecord,
    StepState,
    compose,
    decide,
    steps_named_in,
)
from stagepost.store.batches import add_items, open_batch
from stagepost.store.jobs import enqueue_many
from stagepost.store.listing import failed_groups, list_items

__all__ = ["advance", "end_step", "latest_jobs", "run_of", "save_run"]

PAGE = 500
CHUNK = 2_000
WELL = frozenset({JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.WAIVED})
"""Final states of jobs that a retried step does not run again."""
MOST_RESULT_BYTES = 1_048_576
"""A job's largest payload, so reading results stops there."""


def end_step(batch: BatchRow, counts: Counts) -> Statements[None]:
    """Record that a step's jobs have ended and advance its run, in the transaction that concludes their batch.

    Locks the run's row after the batch's. Every operation that locks both must use this order.
    """
    rows = yield Statement("lock_run", {"id": batch.owner_id})
    if not rows:
        return  # pruned
    run = run_of(rows[0])
    name = next((name for name, record in run.steps.items() if record.batches[-1:] == (batch.id,)), None)
    if name is None or run.steps[name].state is not StepState.RUNNING:
        return
    ended = yield from _ended(batch, counts, run.steps[name], is_cancelled=run.cancelled_at is not None)
    yield from advance(replace(run, steps={**run.steps, name: ended}))


def _ended(batch: BatchRow, counts: Counts, record: StepRecord, *, is_cancelled: bool) -> Statements[StepRecord]:
    [(now,)] = yield Statement("read_clock")
    bad, gone = counts.failures + counts.cancelled, batch.position - counts.total
    if not bad and gone <= 0:
        return replace(record, state=StepState.COMPLETED, ended_at=now)
    if is_cancelled:
        return replace(record, state=StepState.CANCELLED, ended_at=now)
    error = (yield from _why_failed(batch, bad)) if bad else f"{gone:,} of {batch.position:,} jobs were deleted"
    return replace(record, state=StepState.FAILED, error=error, ended_at=now)


def _why_failed(batch: BatchRow, bad: int) -> Statements[str]:
    if batch.position == 1:
        [job] = yield from list_items(batch.id, most=1)
        return job.error or job.state
    groups = yield from failed_groups(batch.id, most=1)
    why = groups[0].reason if groups else JobState.CANCELLED
    return f"{bad:,} of {batch.position:,} jobs failed, most of them with: {why}"


def advance(run: Run, *, notify: bool = True) -> Statements[Run]:
    """Start and skip steps, and end the run, as its steps require. The caller has locked the run's row."""
    [(now,)] = yield Statement("read_clock")
    records = dict(run.steps)
    is_cancelled = run.cancelled_at is not None
    while True:
        states = {name: record.state for name, record in records.items()}
        decision = decide(run.plan, states, is_cancelled=is_cancelled)
        for name in decision.pass_over:
            state = StepState.CANCELLED if is_cancelled else StepState.SKIPPED
            records[name] = replace(records[name], state=state, ended_at=now)
        for name in decision.start:
            records[name] = yield from _start_step(run, run.plan.step(name), records, now=now, notify=notify)
        if not decision.start and not decision.pass_over:
            break
    run = replace(run, steps=records)
    if decision.end is not None and run.state is RunState.RUNNING:
        run = replace(run, state=decision.end, error=_error_of(run), ended_at=now)
        yield from _enqueue_on_complete(run)
    yield from save_run(run)
    return run


def _error_of(run: Run) -> str | None:
    failed = [f"step {name!r}: {record.error}" for name, record in run.steps.items() if record.error is not None]
    return "; ".join(failed) or None


def _enqueue_on_complete(run: Run) -> Statements[None]:
    plan = run.plan
    if plan.on_complete is None:
        return
    facts = {"run_id": run.id, "state": run.state}
    payload = as_json({name: facts[name] for name in plan.on_complete_takes})
    job_id = item_id(run.id, f"\0done:{run.starts}")
    job = replace(plan.on_complete, id=job_id, has_chosen_id=True, payload=payload, context=run.context)
    yield from enqueue_many([job], notify=True, are_derived=True)


def save_run(run: Run) -> Statements[None]:
    """Write every column of a run that can change."""
    yield Statement(
        "save_run",
        {
            "id": run.id,
            "state": run.state,
            "steps": as_json(run.steps),
            "starts": run.starts,
            "error": run.error,
            "cancelled_at": run.cancelled_at,
            "ended_at": run.ended_at,
        },
    )


def _start_step(
    run: Run, step: StepPlan, records: Mapping[str, StepRecord], *, now: int, notify: bool
) -> Statements[StepRecord]:
    """Enqueue a step's jobs, except those that completed in an earlier start. Without any, the step ends at once."""
    record = replace(records[step.name], started_at=now, ended_at=None, error=None)
    try:
        outputs = yield from _outputs(run.plan, step, records)
        payloads = compose(step, given=run.input, outputs=outputs)
    except CannotCompose as error:
        return replace(record, state=StepState.FAILED, error=str(error), ended_at=now)
    record = replace(record, items=len(payloads))
    before = yield from latest_jobs(record.batches)
    items = [
        Item(str(position), _job(run, step, payload))
        for position, payload in enumerate(payloads)
        if not _is_done(before.get(position), payload)
    ]
    if not items:
        return replace(record, state=StepState.COMPLETED, ended_at=now)
    key = f"run:{run.id}:{step.name}:{len(record.batches) + 1}"
    batch = yield from open_batch(NewBatch(id=new_id(), key=key, kind=BatchKind.STEP, owner_id=run.id))
    for position in range(0, len(items), CHUNK):
        yield from add_items(batch.id, items[position : position + CHUNK], notify=notify)
    yield Statement("seal_batch", {"id": batch.id})  # concluded when the last of its jobs ends
    return replace(record, state=StepState.RUNNING, batches=(*record.batches, batch.id))


def _is_done(job: JobRow | None, payload: str) -> bool:
    """Whether a job of an earlier start did the same work. A retried input step may have returned other elements."""
    return job is not None and job.state in WELL and job.payload == payload


def _job(run: Run, step: StepPlan, payload: str) -> NewJob:
    return NewJob(
        id="",
        task_name=step.task_name,
        payload=payload,
        queue_name=step.queue_name,
        priority=step.priority,
        max_attempts=step.max_attempts,
        limit_key=step.limit_key,
        limit=step.limit,
        context=run.context,
    )


def _outputs(plan: Plan, step: StepPlan, records: Mapping[str, StepRecord]) -> Statements[dict[str, Raw | None]]:
    """Read the results of the steps that this step takes input from. They have all ended."""
    outputs: dict[str, Raw | None] = {}
    for name in sorted({name for source in step.inputs.values() for name in steps_named_in(source)}):
        outputs[name] = yield from _output(plan.step(name), records[name])
    return outputs


def _output(step: StepPlan, record: StepRecord) -> Statements[Raw | None]:
    if step.each is None and record.state is StepState.FAILED:
        return None
    jobs = yield from latest_jobs(record.batches, most_bytes=MOST_RESULT_BYTES)
    wanted = range(record.items or 0)
    missing = sum(position not in jobs for position in wanted)
    if missing and record.state is not StepState.FAILED:
        raise CannotCompose(
            f"{missing:,} of {len(wanted):,} results of step {step.name!r} no longer exist: their jobs were "
            f"discarded, or pruned from history, after the run had ended. Start another run."
        )
    ended = [jobs[position] for position in wanted if position in jobs and jobs[position].state in WELL]
    if step.each is None:
        return Raw((ended[0].result or "null").encode()) if ended else None
    results = [job.result or "null" for job in ended if job.state is not JobState.WAIVED]
    return Raw(f"[{','.join(results)}]".encode())


def latest_jobs(batches: Sequence[str], *, most_bytes: int | None = None) -> Statements[dict[int, JobRow]]:
    """Read a step's jobs by position. For a step that was started again, the latest job of each position."""
    latest: dict[int, JobRow] = {}
    size = 0
    for batch_id in batches:
        before: str | None = None
        while True:
            page = yield from list_items(batch_id, before=before, most=PAGE)
            latest |= {int(job.item_key or 0): job for job in page}
            size += sum(len(job.result or "") for job in page)
            if most_bytes is not None and size > most_bytes:
                raise CannotCompose(
                    f"the results that it takes from earlier steps have more than {most_bytes:,} bytes of JSON. "
                    f"Let those steps store large values elsewhere and return keys."
                )
            if len(page) < PAGE:
                break
            before = page[-1].id
    return latest


def run_of(row: tuple[Any, ...]) -> Run:
    """Build a run from the columns that every run statement selects."""
    values = dict(zip(Run.__struct_fields__, row, strict=True))
    return Run(
        **values
        | {
            "id": str(values["id"]),
            "state": RunState(values["state"]),
            "plan": msgspec.json.decode(values["plan"], type=Plan),
            "input": msgspec.json.decode(values["input"], type=dict[str, Raw]),
            "steps": msgspec.json.decode(values["steps"], type=dict[str, StepRecord]),
        }
    )
