"""Operations on runs of pipelines: start, go on when a step has ended, retry, cancel, look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from stagepost.errors import RunError, RunNotFound, StoreUnavailable
from stagepost.model.batch import Batch, BatchKind, Counts, Item, NewBatch, item_id
from stagepost.model.identity import new_id
from stagepost.model.job import Job, NewJob, microseconds
from stagepost.model.lifecycle import LIVE, Cause, JobState
from stagepost.model.pipeline import (
    CannotCompose,
    NewRun,
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
from stagepost.store.batch_items import failed_groups, list_items
from stagepost.store.batches import add_items, delete_batch, open_batch, seal
from stagepost.store.batches import cancel as cancel_batch
from stagepost.store.jobs import audit, enqueue_many
from stagepost.store.statement import Statement, Steps, as_json, operation, query

__all__ = ["Started", "cancel", "end_step", "find", "get", "latest_jobs", "list_runs", "prune_runs", "retry", "start"]

LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
PAGE = 500
MOST_PRUNED = 100
CHUNK = 2_000
WELL = frozenset({JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.WAIVED})
"""How jobs ended that a step need not run again."""
MOST_RESULT_BYTES = 1_048_576
"""No job takes more, so what is longer need not be read to its end."""


class Started(msgspec.Struct, frozen=True):
    """A run that was asked for, and whether this request made it."""

    run: Run
    is_new: bool


@operation
def start(new: NewRun, *, tell: bool = False) -> Steps[Started]:
    """Make a run and start its first steps, or find the run of this pipeline that has its key."""
    # Looked for without a lock: MariaDB locks the keys beside one that is found taken.
    found = yield from find(new.pipeline, new.key).start()
    if found is not None and found.id != new.id:
        return Started(found, is_new=False)
    key = {"pipeline": new.pipeline, "run_key": new.key}
    steps = as_json({step.name: StepRecord() for step in new.plan.steps})
    facts = {"plan": as_json(new.plan), "input": as_json(new.input), "steps": steps, "context": new.context}
    yield Statement("add_run", {"id": new.id, **key, **facts})
    [row] = (yield Statement("lock_run", {"id": new.id})) or (yield Statement("lock_run_of_key", key))
    run = run_of(row)
    if run.id != new.id:
        return Started(run, is_new=False)
    # After a lost reply it may be there from before: then its first steps are not pending, and nothing happens.
    return Started((yield from _go_on(run, tell=tell)), is_new=True)


def end_step(batch: Batch, counts: Counts) -> Steps[None]:
    """Record that a step's jobs have ended and go on with its run, in the transaction that concludes their batch.

    The run's row is locked after the batch's; whoever needs both keeps to that order.
    """
    rows = yield Statement("lock_run", {"id": batch.owner_id})
    if not rows:
        return  # pruned
    run = run_of(rows[0])
    name = next((name for name, record in run.steps.items() if record.batches[-1:] == (batch.id,)), None)
    if name is None or run.steps[name].state is not StepState.RUNNING:
        return
    ended = yield from _ended(batch, counts, run.steps[name], is_cancelled=run.cancelled_at is not None)
    yield from _go_on(replace(run, steps={**run.steps, name: ended}))


def _ended(batch: Batch, counts: Counts, record: StepRecord, *, is_cancelled: bool) -> Steps[StepRecord]:
    [(now,)] = yield Statement("read_clock")
    bad, gone = counts.failures + counts.cancelled, batch.position - counts.total
    if not bad and gone <= 0:
        return replace(record, state=StepState.COMPLETED, ended_at=now)
    if is_cancelled:
        return replace(record, state=StepState.CANCELLED, ended_at=now)
    error = (yield from _why_failed(batch, bad)) if bad else f"{gone:,} of {batch.position:,} jobs were deleted"
    return replace(record, state=StepState.FAILED, error=error, ended_at=now)


def _why_failed(batch: Batch, bad: int) -> Steps[str]:
    if batch.position == 1:
        [job] = yield from list_items(batch.id, most=1).start()
        return job.error or job.state
    groups = yield from failed_groups(batch.id, most=1).start()
    why = groups[0].reason if groups else JobState.CANCELLED
    return f"{bad:,} of {batch.position:,} jobs failed, most of them with: {why}"


def _go_on(run: Run, *, tell: bool = True) -> Steps[Run]:
    """Start, pass over and end what follows from how the steps are; the run's row is locked."""
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
            records[name] = yield from _start_step(run, run.plan.step(name), records, now=now, tell=tell)
        if not decision.start and not decision.pass_over:
            break
    run = replace(run, steps=records)
    if decision.end is not None and run.state is RunState.RUNNING:
        run = replace(run, state=decision.end, error=_error_of(run), ended_at=now)
        yield from _tell_of_end(run)
    yield from _save(run)
    return run


def _error_of(run: Run) -> str | None:
    failed = [f"step {name!r}: {record.error}" for name, record in run.steps.items() if record.error is not None]
    return "; ".join(failed) or None


def _tell_of_end(run: Run) -> Steps[None]:
    plan = run.plan
    if plan.on_complete is None:
        return
    facts = {"run_id": run.id, "state": run.state}
    payload = as_json({name: facts[name] for name in plan.on_complete_takes})
    job_id = item_id(run.id, f"\0done:{run.starts}")
    job = replace(plan.on_complete, id=job_id, has_chosen_id=True, payload=payload, context=run.context)
    yield from enqueue_many([job], tell=True, are_derived=True).start()


def _save(run: Run) -> Steps[None]:
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
    run: Run, step: StepPlan, records: Mapping[str, StepRecord], *, now: int, tell: bool
) -> Steps[StepRecord]:
    """Enqueue a step's jobs, those that have not ended well before; it ends at once if there are none to enqueue."""
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
    batch = yield from open_batch(NewBatch(id=new_id(), key=key, kind=BatchKind.STEP, owner_id=run.id)).start()
    for position in range(0, len(items), CHUNK):
        yield from add_items(batch.id, items[position : position + CHUNK], tell=tell).start()
    yield from seal(batch.id).start()
    return replace(record, state=StepState.RUNNING, batches=(*record.batches, batch.id))


def _is_done(job: Job | None, payload: str) -> bool:
    """Say whether a job of an earlier start did this very work: inputs that were retried may give other elements."""
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


def _outputs(plan: Plan, step: StepPlan, records: Mapping[str, StepRecord]) -> Steps[dict[str, Raw | None]]:
    """Read what the steps gave that this one takes something of; all of it has ended."""
    outputs: dict[str, Raw | None] = {}
    for name in sorted({name for source in step.inputs.values() for name in steps_named_in(source)}):
        outputs[name] = yield from _output(plan.step(name), records[name])
    return outputs


def _output(step: StepPlan, record: StepRecord) -> Steps[Raw | None]:
    if step.each is None and record.state is StepState.FAILED:
        return None
    jobs = yield from latest_jobs(record.batches, most_bytes=MOST_RESULT_BYTES)
    wanted = range(record.items or 0)
    missing = sum(position not in jobs for position in wanted)
    if missing and record.state is not StepState.FAILED:
        raise CannotCompose(
            f"{missing:,} of {len(wanted):,} results of step {step.name!r} are not there any more: their jobs were "
            f"discarded, or pruned from history, after the run had ended. Start another run."
        )
    ended = [jobs[position] for position in wanted if position in jobs and jobs[position].state in WELL]
    if step.each is None:
        return Raw((ended[0].result or "null").encode()) if ended else None
    results = [job.result or "null" for job in ended if job.state is not JobState.WAIVED]
    return Raw(f"[{','.join(results)}]".encode())


def latest_jobs(batches: Sequence[str], *, most_bytes: int | None = None) -> Steps[dict[int, Job]]:
    """Read the jobs of a step by their position; of one that was started again, the later."""
    latest: dict[int, Job] = {}
    size = 0
    for batch_id in batches:
        before: str | None = None
        while True:
            page = yield from list_items(batch_id, before=before, most=PAGE).start()
            latest |= {int(job.item_key or 0): job for job in page}
            size += sum(len(job.result or "") for job in page)
            if most_bytes is not None and size > most_bytes:
                raise CannotCompose(
                    f"the results of the step before it are more than {most_bytes:,} bytes of JSON. "
                    f"Let that step store large values elsewhere, and return keys."
                )
            if len(page) < PAGE:
                break
            before = page[-1].id
    return latest


@operation
def retry(run_id: str, *, actor: str, repeated: bool = False) -> Steps[Run]:
    """Go on with a run that has ended: its steps that failed, or did not get their turn, are pending again."""
    run = yield from _locked(run_id)
    if run.state is RunState.RUNNING:
        if repeated:
            return run
        raise RunError(run_id, "it has not ended. Wait until it has, or cancel it, before it is retried.")
    again = {name: record for name, record in run.steps.items() if record.state is not StepState.COMPLETED}
    if not again:
        return run
    for name, record in again.items():
        for batch_id in record.batches[-1:]:
            live = yield from list_items(batch_id, states=sorted(LIVE), most=1).start()
            if live:
                raise RunError(
                    run_id, f"job {live[0].id} of step {name!r} is {live[0].state}. Wait until it has ended."
                )
    yield from audit(actor, Cause.RESTART, run_id, detail=run.state).start()
    pending = {
        name: replace(record, state=StepState.PENDING, error=None, started_at=None, ended_at=None)
        for name, record in again.items()
    }
    return (
        yield from _go_on(
            replace(
                run,
                state=RunState.RUNNING,
                steps=run.steps | pending,
                starts=run.starts + 1,
                error=None,
                cancelled_at=None,
                ended_at=None,
            )
        )
    )


@operation
def cancel(run_id: str, *, actor: str) -> Steps[list[str]]:
    """Start no more steps and end those that run; returns the batches whose items are to be cancelled now."""
    batches = _running_batches((yield from get(run_id).start()))
    for batch_id in batches:
        yield Statement("lock_batch", {"id": batch_id})
    run = yield from _locked(run_id)
    if run.state is not RunState.RUNNING or run.cancelled_at is not None:
        return _running_batches(run)
    if not set(_running_batches(run)) <= set(batches):
        raise StoreUnavailable(f"run {run_id} started other steps while it was being cancelled")
    [(now,)] = yield Statement("read_clock")
    yield from audit(actor, Cause.CANCEL, run_id).start()
    yield from _save(replace(run, cancelled_at=now))
    for batch_id in batches:
        yield from cancel_batch(batch_id, actor=actor).start()
    return batches


def _running_batches(run: Run) -> list[str]:
    return sorted(record.batches[-1] for record in run.steps.values() if record.state is StepState.RUNNING)


@query
def find(pipeline: str, key: str) -> Steps[Run | None]:
    """Look a run up by its pipeline and key."""
    rows = yield Statement("run_of_key", {"pipeline": pipeline, "run_key": key})
    return run_of(rows[0]) if rows else None


@query
def get(run_id: str) -> Steps[Run]:
    """Look a run up by its id; there must be one."""
    rows = yield Statement("run_of_id", {"id": run_id})
    if not rows:
        raise RunNotFound(run_id)
    return run_of(rows[0])


@query
def list_runs(
    *, pipeline: str | None = None, state: RunState | None = None, before: str | None = None, most: int = 50
) -> Steps[list[Run]]:
    """List runs newest first; `before` is the last id of the page before this one."""
    filters: dict[str, Any] = {"before": before or LAST_ID, "most": most}
    if pipeline is not None:
        filters["pipeline"] = pipeline
    if state is not None:
        filters["state"] = state
    rows = yield Statement("list_pipeline_runs", filters)
    return [run_of(row) for row in rows]


@operation
def prune_runs(older_than: timedelta, *, most: int = 100) -> Steps[int]:
    """Delete runs that ended more than `older_than` ago, with their steps' batches, once the jobs of these are gone."""
    limits = {"older_us": microseconds(older_than), "most": min(most, MOST_PRUNED)}
    rows = yield Statement("lock_prunable_pipeline_runs", limits)
    pruned = 0
    for run_id, text in rows:
        records = msgspec.json.decode(text, type=dict[str, StepRecord]).values()
        batches = [batch_id for record in records for batch_id in record.batches]
        if (yield from _have_jobs(batches)):
            continue
        for batch_id in batches:
            yield from delete_batch(batch_id)
        yield Statement("delete_run", {"id": str(run_id)})
        pruned += 1
    return pruned


def _have_jobs(batches: Sequence[str]) -> Steps[bool]:
    for batch_id in batches:
        if (yield from list_items(batch_id, most=1).start()):
            return True
    return False


def run_of(row: tuple[Any, ...]) -> Run:
    """Build a run from the columns that all statements on runs share."""
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


def _locked(run_id: str) -> Steps[Run]:
    rows = yield Statement("lock_run", {"id": run_id})
    if not rows:
        raise RunNotFound(run_id)
    return run_of(rows[0])
