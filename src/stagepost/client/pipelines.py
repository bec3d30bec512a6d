"""Pipelines as applications declare them: steps made of tasks, checked while they are declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Raw

from stagepost.client.runs import RunHandle
from stagepost.client.steps import LIMITS, PipelineInput, Step, bare_job, encode_value, listed
from stagepost.errors import PipelineError
from stagepost.model.checks import NAME
from stagepost.model.context import current_trace
from stagepost.model.identity import new_id
from stagepost.model.pipeline import NewRun, OnStepFailed, Plan, Run, RunState, in_order
from stagepost.store import runs
from stagepost.store.transaction import run_in, run_in_async
from stagepost.task import NO_OPTIONS, JobOptions, Task

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Pipeline"]

LONGEST_KEY = 191
RESERVED = frozenset({"key", "tx"})
"""Parameters of `start`, so no inputs."""
TELLS = ("run_id", "state")
"""What the task that is told of a run's end may take."""


class Pipeline:
    """Steps and what each one takes from where; `start` makes a run of it."""

    def __init__(self, app: App, name: str, *, on_complete: Task[..., Any] | None = None) -> None:
        self.name = name
        self._app = app
        self._steps: dict[str, Step] = {}
        self._inputs: dict[str, PipelineInput] = {}
        if not NAME.fullmatch(name):
            raise PipelineError(
                f"pipeline name {name!r}: use 1 to 191 letters, digits and _ . : - (not beginning with . : -)."
            )
        self._on_complete = on_complete
        if on_complete is not None:
            _check_told(name, on_complete)

    @property
    def steps(self) -> Mapping[str, Step]:
        """The steps by name, in the order in which they were declared."""
        return self._steps

    def input(self, name: str, *, default: Any = UNSET) -> PipelineInput:
        """Something that a run is started with; with a default it may be left out."""
        if name in RESERVED or not name.isidentifier():
            raise PipelineError(f"pipeline {self.name}: no input can be called {name!r}. Choose another name.")
        made = self._inputs.setdefault(name, PipelineInput(self, name))
        if default is not UNSET:
            made.default = default
        return made

    def step(
        self,
        task: Task[..., Any],
        *,
        name: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        each: Any = None,
        parents: Iterable[Step | str] = (),
        on_failed: OnStepFailed | Literal["stop", "skip", "continue"] = "stop",
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
    ) -> Step:
        """Add a step that runs a task.

        `inputs` says by parameter what the task takes: a step, for what it gave; `step["field"]`, for a part of that;
        `pipeline.input(…)`; a list of these; or a value. Steps that are named there are its parents without saying so.

        `each` names a list, and the step has one job for each of its elements: `each={"segment": asr["segments"]}`,
        or only the list if one parameter is left over. What comes after gets the list of their results, in order.
        """
        given = JobOptions(queue=queue, priority=priority, max_attempts=max_attempts)
        step = Step(self, task, name or task.__name__, options=given, on_failed=_policy(self, on_failed))
        if step.name in self._steps:
            raise PipelineError(f"pipeline {self.name} has two steps {step.name!r}. Give one another `name`.")
        step.take(dict(inputs or {}), each)
        for parent in parents:
            step.follow(self._own(step, parent))
        self._steps[step.name] = step
        return step

    def start(self, key: str | None = None, *, tx: Any = None, **input: Any) -> RunHandle:  # noqa: A002 - it is
        """Start a run with this input; if this pipeline has a run with this key, that is the one you get."""
        operation = runs.start(self._new_run(key, input), tell=self._app.settings.wakeups)
        store = self._app.store
        started = store.run(operation) if tx is None else run_in(tx, operation, clock=store.clock)
        self._app.store.doorbell.ring(_queues(started.run), tx=tx)
        return RunHandle(self._app, started.run, is_new=started.is_new)

    async def start_async(self, key: str | None = None, *, tx: Any = None, **input: Any) -> RunHandle:  # noqa: A002
        """Start a run without blocking the loop; `tx` is an async connection or session."""
        operation = runs.start(self._new_run(key, input), tell=self._app.settings.wakeups)
        if tx is None:
            started = await self._app.async_store.run(operation)
        else:
            started = await run_in_async(tx, operation, clock=self._app.store.clock)
        self._app.store.doorbell.ring(_queues(started.run), tx=tx)
        return RunHandle(self._app, started.run, is_new=started.is_new)

    def find(self, key: str, *, tx: Any = None) -> RunHandle | None:
        """Look up the run that was started with this key; with `tx`, as your transaction sees it."""
        operation, store = runs.find(self.name, key), self._app.store
        run = store.run(operation) if tx is None else run_in(tx, operation, clock=store.clock)
        return None if run is None else RunHandle(self._app, run, is_new=False)

    async def find_async(self, key: str, *, tx: Any = None) -> RunHandle | None:
        """Look up the run that was started with this key, without blocking the loop; `tx` is async, too."""
        operation = runs.find(self.name, key)
        if tx is None:
            run = await self._app.async_store.run(operation)
        else:
            run = await run_in_async(tx, operation, clock=self._app.store.clock)
        return None if run is None else RunHandle(self._app, run, is_new=False)

    def runs(self, *, state: RunState | None = None, before: str | None = None, most: int = 50) -> list[RunHandle]:
        """List a page of this pipeline's runs, newest first; `before` is the last id of the page before."""
        found = self._app.store.run(runs.list_runs(pipeline=self.name, state=state, before=before, most=most))
        return [RunHandle(self._app, run, is_new=False) for run in found]

    async def runs_async(
        self, *, state: RunState | None = None, before: str | None = None, most: int = 50
    ) -> list[RunHandle]:
        """List a page of this pipeline's runs without blocking the loop."""
        operation = runs.list_runs(pipeline=self.name, state=state, before=before, most=most)
        return [RunHandle(self._app, run, is_new=False) for run in await self._app.async_store.run(operation)]

    @property
    def plan(self) -> Plan:
        """What a run carries with it: all that is needed to go on without this code."""
        if not self._steps:
            raise PipelineError(f"pipeline {self.name} has no steps. Add some with `step(task)`.")
        order = in_order({name: step.parents for name, step in self._steps.items()}) or []
        told = self._on_complete
        return Plan(
            steps=tuple(self._steps[name].plan for name in order),
            on_complete=None if told is None else bare_job(told, NO_OPTIONS),
            on_complete_takes=()
            if told is None
            else tuple(name for name in TELLS if name in told.signature.parameters),
        )

    def check_circles(self) -> None:
        """Refuse steps that come, by way of others, after themselves."""
        if in_order({name: step.parents for name, step in self._steps.items()}) is None:
            raise PipelineError(
                f"pipeline {self.name}: its steps form a circle, so none of them could be the first. "
                f"Take out one `>>` or one of `parents` of {listed(self._steps)}."
            )

    def _own(self, step: Step, parent: Step | str) -> Step:
        name = parent.name if isinstance(parent, Step) else parent
        known = self._steps.get(name)
        if known is None or (isinstance(parent, Step) and parent is not known):
            raise PipelineError(
                f"pipeline {self.name}, step {step.name!r}: there is no step {name!r} here. "
                f"Declared steps are: {listed(self._steps)}. Declare a step before those that come after it."
            )
        return known

    def _new_run(self, key: str | None, given: dict[str, Any]) -> NewRun:
        run_id = new_id()
        key = run_id if key is None else key
        if not 1 <= len(key) <= LONGEST_KEY or key != key.strip():
            raise PipelineError(
                f"pipeline {self.name}: key {key!r} must have 1 to {LONGEST_KEY} characters, "
                f"not beginning or ending with white space."
            )
        return NewRun(
            id=run_id,
            key=key,
            pipeline=self.name,
            plan=self.plan,
            input=self._encoded(given),
            context=current_trace.get().encode(),
        )

    def _encoded(self, given: dict[str, Any]) -> dict[str, Raw]:
        unknown = sorted(set(given) - set(self._inputs))
        if unknown:
            raise PipelineError(
                f"pipeline {self.name} takes no input {unknown[0]!r}. It takes: {listed(self._inputs)}."
            )
        values = {name: made.default for name, made in self._inputs.items() if made.default is not UNSET} | given
        missing = [name for name in self._inputs if name not in values]
        if missing:
            raise PipelineError(
                f"pipeline {self.name}: input {missing[0]!r} is missing. Pass it to `start`, or give it a default."
            )
        what = f"pipeline {self.name}, input"
        encoded = {name: encode_value(value, Any, f"{what} {name!r}") for name, value in values.items()}
        size = sum(map(len, map(bytes, encoded.values())))
        if size > LIMITS.max_bytes:
            raise PipelineError(
                f"pipeline {self.name}: its input is {size:,} bytes of JSON; the limit is {LIMITS.max_bytes:,}. "
                f"Store large values elsewhere, and pass keys."
            )
        for step in self._steps.values():
            step.check_input(encoded)
        return encoded


def _check_told(pipeline: str, task: Task[..., Any]) -> None:
    unknown = [name for name in task.signature.required if name not in TELLS]
    if unknown:
        raise PipelineError(
            f"pipeline {pipeline}: `on_complete` calls {task.name} with {listed(TELLS)}, "
            f"and nothing for its parameter `{unknown[0]}`. Give that a default."
        )


def _policy(pipeline: Pipeline, on_failed: str) -> OnStepFailed:
    try:
        return OnStepFailed(on_failed)
    except ValueError:
        raise PipelineError(
            f"pipeline {pipeline.name}: on_failed is {on_failed!r}. Valid values are: {', '.join(OnStepFailed)}."
        ) from None


def _queues(run: Run) -> set[str]:
    return {step.queue_name for step in run.plan.steps if run.steps[step.name].batches}
