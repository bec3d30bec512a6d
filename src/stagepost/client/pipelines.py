"""Declarations of pipelines: steps that run tasks, checked as they are declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Raw

from stagepost.client.arguments import choices, page_size, page_start
from stagepost.client.runs import RunHandle
from stagepost.client.steps import LIMITS, PipelineInput, Step, bare_job, encode_value, listed
from stagepost.database.statement import Operation
from stagepost.database.transaction import run_in, run_in_async
from stagepost.errors import PipelineError, shown
from stagepost.model.batch import check_key
from stagepost.model.checks import check_name
from stagepost.model.context import current_trace
from stagepost.model.identity import new_id
from stagepost.model.option_types import check_type
from stagepost.model.options import NO_OPTIONS, JobOptions
from stagepost.model.pipeline import NewRun, OnStepFailed, Plan, Run, RunState, in_order
from stagepost.store import runs
from stagepost.task import Task, check_task

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Pipeline"]

RESERVED = frozenset({"key", "tx"})
"""Parameters of `start`, which cannot be names of inputs."""
ON_COMPLETE_TAKES = ("run_id", "state")
"""Arguments that the `on_complete` task may take."""


class Pipeline:
    """A set of steps and the sources of their arguments; `start` creates a run."""

    def __init__(self, app: App, name: str, *, on_complete: Task[..., Any] | None = None) -> None:
        self.name = name
        self._app = app
        self._steps: dict[str, Step] = {}
        self._inputs: dict[str, PipelineInput] = {}
        check_name("pipeline", name)
        self._on_complete = on_complete
        if on_complete is not None:
            check_task(f"pipeline {name}: on_complete", on_complete)
            _check_on_complete(name, on_complete)

    @property
    def steps(self) -> Mapping[str, Step]:
        """The steps by name, in the order in which they were declared."""
        return self._steps

    def input(self, name: str, *, default: Any = UNSET) -> PipelineInput:
        """Declare an argument of `start`; one with a default may be left out."""
        if name in RESERVED or not name.isidentifier():
            raise PipelineError(f"pipeline {self.name}: an input cannot be named {name!r}. Choose another name.")
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

        `inputs` maps each parameter of the task to its source: a step, for its result; `step["field"]`, for a part of
        the result; `pipeline.input(…)`; a list of these; or a value. Steps used there become parents automatically.

        `each` names a list, and the step runs one job per element: `each={"segment": asr["segments"]}`, or only the
        list if one parameter is left over. Later steps get the list of the results, in order.
        """
        check_task(f"pipeline {self.name}: a step's task", task)
        check_type(f"pipeline {self.name}: name of a step", name, str | None)
        check_type(f"pipeline {self.name}: inputs of a step", inputs, Mapping | None)
        check_type(f"pipeline {self.name}: parents of a step", parents, Iterable)
        given = JobOptions(queue=queue, priority=priority, max_attempts=max_attempts)
        step = Step(self, task, name or task.__name__, options=given, on_failed=_policy(self, on_failed))
        if step.name in self._steps:
            raise PipelineError(f"pipeline {self.name} has two steps named {step.name!r}. Give one another `name`.")
        step.take(dict(inputs or {}), each)
        for parent in parents:
            step.follow(self._own(step, parent))
        self._steps[step.name] = step
        return step

    def start(self, key: str | None = None, *, tx: Any = None, **input: Any) -> RunHandle:  # noqa: A002 - it is
        """Start a run with this input, or return the pipeline's existing run with this key."""
        operation = runs.start(self._new_run(key, input), notify=self._app.settings.wakeups)
        store = self._app.store
        started = (
            store.run(operation)
            if tx is None
            else run_in(tx, operation, clock=store.clock, database=store.callers_database)
        )
        self._app.store.notifier.notify(_queues(started.run), tx=tx)
        return RunHandle(self._app, started.run, is_new=started.is_new)

    async def start_async(self, key: str | None = None, *, tx: Any = None, **input: Any) -> RunHandle:  # noqa: A002
        """Start a run without blocking the event loop; `tx` is an async connection or session."""
        operation = runs.start(self._new_run(key, input), notify=self._app.settings.wakeups)
        if tx is None:
            started = await self._app.async_store.run(operation)
        else:
            started = await run_in_async(
                tx, operation, clock=self._app.store.clock, database=self._app.store.callers_database
            )
        self._app.store.notifier.notify(_queues(started.run), tx=tx)
        return RunHandle(self._app, started.run, is_new=started.is_new)

    def find(self, key: str, *, tx: Any = None) -> RunHandle | None:
        """Find the run that was started with this key; with `tx`, as your transaction sees it."""
        operation, store = self._finding(key), self._app.store
        run = (
            store.run(operation)
            if tx is None
            else run_in(tx, operation, clock=store.clock, database=store.callers_database)
        )
        return None if run is None else RunHandle(self._app, run, is_new=False)

    async def find_async(self, key: str, *, tx: Any = None) -> RunHandle | None:
        """Find a run like `find`, without blocking the event loop; `tx` is an async connection or session."""
        operation = self._finding(key)
        if tx is None:
            run = await self._app.async_store.run(operation)
        else:
            run = await run_in_async(
                tx, operation, clock=self._app.store.clock, database=self._app.store.callers_database
            )
        return None if run is None else RunHandle(self._app, run, is_new=False)

    def _finding(self, key: str) -> Operation[Run | None]:
        check_key(f"pipeline {self.name}: key", key)
        return runs.find(self.name, key)

    def runs(self, *, state: RunState | None = None, before: str | None = None, limit: int = 50) -> list[RunHandle]:
        """List a page of this pipeline's runs, newest first; `before` is the last id of the previous page."""
        found = self._app.store.run(self._page(state, before, limit))
        return [RunHandle(self._app, run, is_new=False) for run in found]

    async def runs_async(
        self, *, state: RunState | None = None, before: str | None = None, limit: int = 50
    ) -> list[RunHandle]:
        """List a page of this pipeline's runs without blocking the event loop."""
        operation = self._page(state, before, limit)
        return [RunHandle(self._app, run, is_new=False) for run in await self._app.async_store.run(operation)]

    def _page(self, state: RunState | None, before: str | None, limit: int) -> Operation[list[Run]]:
        [chosen] = [None] if state is None else choices("state", [state], RunState)
        return runs.list_runs(pipeline=self.name, state=chosen, before=page_start(before), most=page_size(limit))

    @property
    def plan(self) -> Plan:
        """Everything that is stored with a run, so that it can continue without this code."""
        if not self._steps:
            raise PipelineError(f"pipeline {self.name} has no steps. Add some with `step(task)`.")
        order = in_order({name: step.parents for name, step in self._steps.items()}) or []
        told = self._on_complete
        return Plan(
            steps=tuple(self._steps[name].plan for name in order),
            on_complete=None if told is None else bare_job(told, NO_OPTIONS),
            on_complete_takes=()
            if told is None
            else tuple(name for name in ON_COMPLETE_TAKES if name in told.signature.parameters),
        )

    def check_circles(self) -> None:
        """Raise PipelineError if the steps form a cycle."""
        if in_order({name: step.parents for name, step in self._steps.items()}) is None:
            raise PipelineError(
                f"pipeline {self.name}: its steps form a cycle, so none of them can run first. "
                f"Remove one `>>` or one of the `parents` of {listed(self._steps)}."
            )

    def _own(self, step: Step, parent: Step | str) -> Step:
        name = parent.name if isinstance(parent, Step) else parent
        known = self._steps.get(name)
        if known is None or (isinstance(parent, Step) and parent is not known):
            raise PipelineError(
                f"pipeline {self.name}, step {step.name!r}: the pipeline has no step {shown(name)}. "
                f"Declared steps are: {listed(self._steps)}. Declare a step before the steps that follow it."
            )
        return known

    def _new_run(self, key: str | None, given: dict[str, Any]) -> NewRun:
        run_id = new_id()
        key = run_id if key is None else key
        check_key(f"pipeline {self.name}: key", key)
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
                f"pipeline {self.name} has no input {unknown[0]!r}. Its inputs are: {listed(self._inputs)}."
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
                f"Store large values elsewhere and pass keys."
            )
        for step in self._steps.values():
            step.check_input(encoded)
        return encoded


def _check_on_complete(pipeline: str, task: Task[..., Any]) -> None:
    unknown = [name for name in task.signature.required if name not in ON_COMPLETE_TAKES]
    if unknown:
        raise PipelineError(
            f"pipeline {pipeline}: `on_complete` calls {task.name} with only {listed(ON_COMPLETE_TAKES)}, "
            f"not with its parameter `{unknown[0]}`. Give that parameter a default."
        )


def _policy(pipeline: Pipeline, on_failed: str) -> OnStepFailed:
    if on_failed not in list(OnStepFailed):
        raise PipelineError(
            f"pipeline {pipeline.name}: on_failed is {shown(on_failed)}. Valid values are: {', '.join(OnStepFailed)}."
        )
    return OnStepFailed(on_failed)


def _queues(run: Run) -> set[str]:
    return {step.queue_name for step in run.plan.steps if run.steps[step.name].batches}
