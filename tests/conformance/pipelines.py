"""Runs of pipelines on the test bench: steps whose tasks return what the test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from stagepost.database.statement import Operation
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob
from stagepost.model.outcome import Completed, Outcome, Refused
from stagepost.model.pipeline import (
    Constant,
    NewRun,
    OnStepFailed,
    Output,
    Plan,
    Run,
    RunState,
    Source,
    StepPlan,
    StepState,
    steps_named_in,
)
from stagepost.store import concluding, leases, runs, settling
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE

QUEUE = "steps"

Answer = Callable[[LeasedJob], Outcome]


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def step(
    name: str,
    inputs: Mapping[str, Any] | None = None,
    *,
    after: tuple[str, ...] = (),
    each: str | None = None,
    on_failed: str = "stop",
    max_bytes: int = 10_000,
) -> StepPlan:
    """A step whose task has the same name; inputs that are not sources are constants."""
    sources: dict[str, Source] = {
        key: value if isinstance(value, Source) else Constant(raw(value)) for key, value in (inputs or {}).items()
    }
    taken = [parent for source in sources.values() for parent in steps_named_in(source)]
    return StepPlan(
        name=name,
        task_name=f"task.{name}",
        parents=tuple(dict.fromkeys([*taken, *after])),
        inputs=sources,
        each=each,
        on_failed=OnStepFailed(on_failed),
        queue_name=QUEUE,
        priority=3,
        max_attempts=2,
        max_bytes=max_bytes,
    )


def new_run(*steps: StepPlan, key: str | None = None, given: Mapping[str, Any] | None = None, **plan: Any) -> NewRun:
    run_id = new_id()
    return NewRun(
        id=run_id,
        key=key or run_id,
        pipeline="dub",
        plan=Plan(steps=steps, **plan),
        input={name: raw(value) for name, value in (given or {}).items()},
        context='{"trace":"4bf9"}',
    )


def begin(store: Bench, *steps: StepPlan, **facts: Any) -> str:
    """Start a run of these steps."""
    return store.run(runs.start(new_run(*steps, **facts))).run.id


def look(store: Bench, run_id: str) -> Run:
    return store.run(runs.get(run_id))


def states(store: Bench, run_id: str) -> dict[str, str]:
    return {name: str(record.state) for name, record in look(store, run_id).steps.items()}


def claim_all(store: Bench, *, owner: str = "worker-a") -> list[LeasedJob]:
    """Lease every job of every step that is queued, in the order of positions."""
    names = [str(name) for (name,) in store.rows("select distinct task_name from stagepost_job")]
    claim = leases.claim(QUEUE, owner=owner, task_names=names, slots=1000, lease=LEASE)
    return store.run(claim) if names else []


def settle(store: Bench, job: LeasedJob, outcome: Outcome) -> None:
    """End a job; its batch is not concluded yet."""
    assert store.run(settling.settle([Settlement.of(job, outcome)])) == {(job.id, job.attempt): True}


def conclude(job: LeasedJob) -> Operation[Any]:
    assert job.batch_id is not None
    return concluding.conclude(job.batch_id)


def end(store: Bench, job: LeasedJob, outcome: Outcome) -> None:
    """End a job, and its batch if it was the last."""
    settle(store, job, outcome)
    store.run(conclude(job))


def arguments(job: LeasedJob) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(job.payload)
    return decoded


def answered(results: Mapping[str, Any]) -> Answer:
    """Answer with the result of the job's step: a value, an exception to fail with, or what a function gives."""

    def answer(job: LeasedJob) -> Outcome:
        result = results.get(job.task_name.removeprefix("task."))
        if callable(result):
            result = result(**arguments(job))
        if isinstance(result, Exception):
            return Refused(str(result))
        return Completed(None if result is None else msgspec.json.encode(result).decode())

    return answer


def work(store: Bench, run_id: str, results: Mapping[str, Any] | None = None) -> RunState:
    """Run jobs until none is queued; returns the run's state."""
    answer = answered(results or {})
    while jobs := claim_all(store):
        for job in jobs:
            end(store, job, answer(job))
    return look(store, run_id).state


def ended(store: Bench, run_id: str) -> dict[str, StepState]:
    return {name: record.state for name, record in look(store, run_id).steps.items()}


__all__ = [
    "Output",
    "answered",
    "arguments",
    "begin",
    "claim_all",
    "conclude",
    "end",
    "look",
    "new_run",
    "raw",
    "settle",
    "states",
    "step",
    "work",
]
