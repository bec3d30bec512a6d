"""Operations on pipeline runs: start, retry, cancel, look up, prune."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from stagepost.database.statement import Statement, Statements, as_json, operation, query
from stagepost.errors import RunError, RunNotFound, StoreUnavailable
from stagepost.model.job import microseconds
from stagepost.model.lifecycle import LIVE, Cause
from stagepost.model.pipeline import NewRun, Run, RunState, StepRecord, StepState
from stagepost.store.batches import delete_batch
from stagepost.store.cancelling import cancel_batch
from stagepost.store.jobs import audit
from stagepost.store.listing import list_items
from stagepost.store.run_steps import advance, run_of, save_run

__all__ = ["Started", "cancel", "find", "get", "list_runs", "prune_runs", "retry", "start"]

LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
MOST_PRUNED = 100


class Started(msgspec.Struct, frozen=True):
    """The requested run, and whether this request created it."""

    run: Run
    is_new: bool


@operation
def start(new: NewRun, *, notify: bool = False) -> Statements[Started]:
    """Create a run and start its first steps, or find the run of this pipeline that has its key."""
    # Look without a lock first: an insert that finds the key taken locks neighbouring keys on MariaDB.
    found = yield from find(new.pipeline, new.key)
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
    # If an earlier request created the run and its reply was lost, the first steps have started and nothing happens.
    return Started((yield from advance(run, notify=notify)), is_new=True)


@operation
def retry(run_id: str, *, actor: str) -> Statements[Run]:
    """Resume a run that has ended: steps that failed, or were not reached, become pending again."""
    run = yield from _locked(run_id)
    if run.state is RunState.RUNNING:
        raise RunError(run_id, "it has not ended. Wait until it ends, or cancel it, before you retry it.")
    again = {name: record for name, record in run.steps.items() if record.state is not StepState.COMPLETED}
    if not again:
        return run
    for name, record in again.items():
        for batch_id in record.batches[-1:]:
            live = yield from list_items(batch_id, states=sorted(LIVE), most=1)
            if live:
                raise RunError(
                    run_id, f"job {live[0].id} of step {name!r} is {live[0].state}. Wait until it has ended."
                )
    yield from audit(actor, Cause.RESTART, run_id, detail=run.state)
    pending = {
        name: replace(record, state=StepState.PENDING, error=None, started_at=None, ended_at=None)
        for name, record in again.items()
    }
    return (
        yield from advance(
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


@retry.after_lost_reply
def _retry_again(run_id: str, *, actor: str) -> Statements[Run]:
    """Return the run if it is running: the request whose reply was lost has retried it."""
    run = yield from _locked(run_id)
    if run.state is RunState.RUNNING:
        return run
    return (yield from retry(run_id, actor=actor))


@operation
def cancel(run_id: str, *, actor: str) -> Statements[list[str]]:
    """Stop a run from starting steps and cancel the running ones.

    Returns the batches whose items the caller must cancel with `cancel_items`.
    """
    batches = _running_batches((yield from get(run_id)))
    for batch_id in batches:
        yield Statement("lock_batch", {"id": batch_id})
    run = yield from _locked(run_id)
    if run.state is not RunState.RUNNING or run.cancelled_at is not None:
        return _running_batches(run)
    if not set(_running_batches(run)) <= set(batches):
        raise StoreUnavailable(f"run {run_id} started other steps while it was being cancelled. Cancel it again.")
    [(now,)] = yield Statement("read_clock")
    yield from audit(actor, Cause.CANCEL, run_id)
    yield from save_run(replace(run, cancelled_at=now))
    for batch_id in batches:
        yield from cancel_batch(batch_id, actor=actor)
    return batches


def _running_batches(run: Run) -> list[str]:
    return sorted(record.batches[-1] for record in run.steps.values() if record.state is StepState.RUNNING)


@query
def find(pipeline: str, key: str) -> Statements[Run | None]:
    """Look up a run by its pipeline and key."""
    rows = yield Statement("run_of_key", {"pipeline": pipeline, "run_key": key})
    return run_of(rows[0]) if rows else None


@query
def get(run_id: str) -> Statements[Run]:
    """Look up a run by its id, or raise RunNotFound."""
    rows = yield Statement("run_of_id", {"id": run_id})
    if not rows:
        raise RunNotFound(run_id)
    return run_of(rows[0])


@query
def list_runs(
    *, pipeline: str | None = None, state: RunState | None = None, before: str | None = None, most: int = 50
) -> Statements[list[Run]]:
    """List runs, newest first; `before` is the last id of the previous page."""
    filters: dict[str, Any] = {"before": before or LAST_ID, "most": most}
    if pipeline is not None:
        filters["pipeline"] = pipeline
    if state is not None:
        filters["state"] = state
    rows = yield Statement("list_pipeline_runs", filters)
    return [run_of(row) for row in rows]


@operation
def prune_runs(older_than: timedelta, *, most: int = 100) -> Statements[int]:
    """Delete runs that ended more than `older_than` ago and whose jobs have been deleted, with their steps' batches."""
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


def _have_jobs(batches: Sequence[str]) -> Statements[bool]:
    for batch_id in batches:
        if (yield from list_items(batch_id, most=1)):
            return True
    return False


def _locked(run_id: str) -> Statements[Run]:
    rows = yield Statement("lock_run", {"id": run_id})
    if not rows:
        raise RunNotFound(run_id)
    return run_of(rows[0])
