"""Pipelines: their steps, the sources of the steps' arguments, and the decision what to run next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec import Raw

from stagepost.model.job import NewJob

__all__ = [
    "NULL",
    "CannotCompose",
    "Constant",
    "Decision",
    "Gathered",
    "Key",
    "NewRun",
    "OnStepFailed",
    "Output",
    "Plan",
    "Run",
    "RunInput",
    "RunState",
    "Source",
    "StepPlan",
    "StepRecord",
    "StepState",
    "compose",
    "decide",
    "in_order",
    "steps_named_in",
]

MOST_ELEMENTS = 10_000
"""Maximum number of jobs of one step: they are enqueued in one transaction, which must not take long."""
MOST_BYTES = 50_000_000
"""Maximum size of the arguments of one step's jobs together, for the same reason."""
NULL = Raw(b"null")
"""Replaces the result of a failed step."""

Key = str | int
"""A field's name or an element's position."""


class RunState(StrEnum):
    """The states of a run of a pipeline."""

    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepState(StrEnum):
    """The states of a step of a run."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class OnStepFailed(StrEnum):
    """What a failed step does to its run."""

    STOP = "stop"
    """No further step starts; the run fails when the running steps have ended."""
    SKIP = "skip"
    """Later steps that depend on it are skipped; the others continue."""
    CONTINUE = "continue"
    """Later steps run with null instead of its result, or with the results of the jobs that completed."""


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """A value from the declaration."""

    value: Raw


class RunInput(msgspec.Struct, frozen=True, tag="input"):
    """An input of the run, by its name, or a part of it."""

    name: str
    path: tuple[Key, ...] = ()


class Output(msgspec.Struct, frozen=True, tag="output"):
    """A step's result or a part of it; for a step with many jobs, the list of their results."""

    step: str
    path: tuple[Key, ...] = ()


class Gathered(msgspec.Struct, frozen=True, tag="list"):
    """A list of the values of several sources."""

    parts: tuple[Source, ...]


Source = Constant | RunInput | Output | Gathered


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is needed to start a step in a process that does not know its task."""

    name: str
    task_name: str
    parents: tuple[str, ...] = ()
    inputs: dict[str, Source] = {}
    """The source of each parameter, by name."""
    each: str | None = None
    """The parameter that takes one element of its source per job."""
    on_failed: OnStepFailed = OnStepFailed.STOP
    queue_name: str
    priority: int
    max_attempts: int
    limit_key: str | None = None
    limit: int | None = None
    max_bytes: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline as stored with a run; its steps are ordered so that each comes after its parents."""

    steps: tuple[StepPlan, ...]
    on_complete: NewJob | None = None
    """A job, without its arguments, to enqueue when the run has ended."""
    on_complete_takes: tuple[str, ...] = ()
    """The arguments that this job takes, out of `run_id` and `state`."""

    def step(self, name: str) -> StepPlan:
        """Find a step by name."""
        return next(step for step in self.steps if step.name == name)


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of one step of a run."""

    state: StepState = StepState.PENDING
    batches: tuple[str, ...] = ()
    """Ids of the batches of its jobs, one for each start of the step."""
    items: int | None = None
    """Number of results that the step will have; None until it has started."""
    error: str | None = None
    started_at: int | None = None
    ended_at: int | None = None


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A request to start a run."""

    id: str
    key: str
    pipeline: str
    plan: Plan
    input: dict[str, Raw]
    context: str | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of a run. Times are microseconds since 1970, UTC."""

    id: str
    key: str
    pipeline: str
    state: RunState
    plan: Plan
    input: dict[str, Raw]
    steps: dict[str, StepRecord]
    context: str | None
    starts: int
    """Number of starts: one, plus one for each retry."""
    error: str | None
    cancelled_at: int | None
    created_at: int
    updated_at: int
    ended_at: int | None


class Decision(msgspec.Struct, frozen=True):
    """What a run does next: start some steps, skip some, or end."""

    start: tuple[str, ...] = ()
    pass_over: tuple[str, ...] = ()
    end: RunState | None = None


def decide(plan: Plan, states: Mapping[str, StepState], *, is_cancelled: bool) -> Decision:
    """Decide what a run does next; if applied repeatedly, the run ends up waiting for jobs or has ended."""
    failed = [step for step in plan.steps if states[step.name] is StepState.FAILED]
    is_stopped = is_cancelled or any(step.on_failed is OnStepFailed.STOP for step in failed)
    is_idle = StepState.RUNNING not in states.values()
    pending = [step for step in plan.steps if states[step.name] is StepState.PENDING]
    if is_stopped:
        if not is_idle:
            return Decision()
        return Decision(pass_over=tuple(step.name for step in pending)) if pending else _ended(failed, is_cancelled)
    refused = {step.name for step in failed if step.on_failed is OnStepFailed.SKIP}
    refused |= {name for name, state in states.items() if state in {StepState.SKIPPED, StepState.CANCELLED}}
    waiting = {name for name, state in states.items() if state in {StepState.PENDING, StepState.RUNNING}}
    passed_over = tuple(step.name for step in pending if refused.intersection(step.parents))
    ready = tuple(
        step.name for step in pending if step.name not in passed_over and not waiting.intersection(step.parents)
    )
    if not pending and is_idle:
        return _ended(failed, is_cancelled)
    return Decision(start=ready, pass_over=passed_over)


def _ended(failed: Sequence[StepPlan], is_cancelled: bool) -> Decision:
    if is_cancelled:
        return Decision(end=RunState.CANCELLED)
    if any(step.on_failed is OnStepFailed.STOP for step in failed):
        return Decision(end=RunState.FAILED)
    return Decision(end=RunState.COMPLETED_WITH_ERRORS if failed else RunState.COMPLETED)


class CannotCompose(Exception):
    """A step's arguments cannot be built; the message continues "step …: "."""


def compose(step: StepPlan, *, given: Mapping[str, Raw], outputs: Mapping[str, Raw | None]) -> list[str]:
    """Build the arguments of a step's jobs: one job, or one for each element.

    `outputs` contains the results of the steps it uses. For a failed step it contains None, whose parts are all null.
    """
    try:
        values = {name: _value(source, given, outputs) for name, source in step.inputs.items()}
        if step.each is None:
            payloads = [msgspec.json.encode(values)]
        else:
            payloads = [msgspec.json.encode({**values, step.each: element}) for element in _elements(step, values)]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CannotCompose(f"its arguments cannot be read: {error}.") from error
    _check_sizes(step, payloads)
    return [payload.decode() for payload in payloads]


def _elements(step: StepPlan, values: Mapping[str, Raw]) -> list[Raw]:
    whole = values[step.each or ""]
    if whole is NULL:  # the source step failed
        return []
    try:
        elements = msgspec.json.decode(whole, type=list[Raw])
    except msgspec.ValidationError:
        raise CannotCompose(
            f"the source of `{step.each}` is not a list. Return a list, or name the field that is one."
        ) from None
    if len(elements) > MOST_ELEMENTS:
        raise CannotCompose(
            f"the source of `{step.each}` has {len(elements):,} elements; the limit is {MOST_ELEMENTS:,}. "
            f"Return fewer, larger elements, or let a task add them to a batch."
        )
    return elements


def _check_sizes(step: StepPlan, payloads: Sequence[bytes]) -> None:
    largest = max((len(payload) for payload in payloads), default=0)
    if largest > step.max_bytes:
        raise CannotCompose(
            f"its arguments are {largest:,} bytes of JSON; the limit is {step.max_bytes:,}. "
            f"Let earlier steps store large values elsewhere and return keys, or raise the task's `limits`."
        )
    if (total := sum(map(len, payloads))) > MOST_BYTES:
        raise CannotCompose(
            f"the arguments of its {len(payloads):,} jobs are {total:,} bytes of JSON together; "
            f"the limit is {MOST_BYTES:,}. Store shared values elsewhere and pass a key."
        )


def _value(source: Source, given: Mapping[str, Raw], outputs: Mapping[str, Raw | None]) -> Raw:
    match source:
        case Constant(value):
            return value
        case RunInput(name, path):
            return _part(given.get(name, NULL), path, f"the run's input {name!r}")
        case Output(step, path):
            output = outputs[step]
            return NULL if output is None else _part(output, path, f"the result of step {step!r}")
        case Gathered(parts):
            values = (bytes(_value(part, given, outputs)) for part in parts)
            return Raw(b"[" + b",".join(values) + b"]")


def _part(value: Raw, path: Sequence[Key], what: str) -> Raw:
    for key in path:
        try:
            if isinstance(key, int):
                value = msgspec.json.decode(value, type=list[Raw])[key]
            else:
                value = msgspec.json.decode(value, type=dict[str, Raw])[key]
        except (msgspec.ValidationError, LookupError):
            raise CannotCompose(f"{what} has no {key!r}.") from None
        what = f"{what}[{key!r}]"
    return value


def steps_named_in(source: Source) -> Iterator[str]:
    """List the steps whose results a source uses."""
    match source:
        case Output(step):
            yield step
        case Gathered(parts):
            for part in parts:
                yield from steps_named_in(part)
        case _:
            pass


def in_order(parents: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Order steps so that each comes after its parents, otherwise as given; None if they form a cycle."""
    ordered: dict[str, None] = {}
    left = dict(parents)
    while left:
        ready = [name for name, above in left.items() if all(parent in ordered for parent in above)]
        if not ready:
            return None
        for name in ready:
            ordered[name] = None
            del left[name]
    return list(ordered)
