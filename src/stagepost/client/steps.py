"""Steps of a pipeline and the sources of their arguments, checked against the annotations on both sides."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from stagepost.errors import PipelineError
from stagepost.model import json_values
from stagepost.model.checks import NAME
from stagepost.model.fitting import (
    ANY,
    Shape,
    described,
    element_of,
    fits,
    list_of,
    one_of,
    or_null,
    part_of,
    shape_of,
)
from stagepost.model.job import NewJob
from stagepost.model.options import JobOptions
from stagepost.model.payload import PayloadLimits
from stagepost.model.pipeline import Constant, Gathered, Key, OnStepFailed, Output, RunInput, Source, StepPlan
from stagepost.task import Task

if TYPE_CHECKING:
    from stagepost.client.pipelines import Pipeline

__all__ = ["PipelineInput", "Step", "StepOutput", "bare_job", "encode_value", "listed"]

LONGEST_NAME = 100


class PipelineInput:
    """A named input of a run, or a part of it."""

    def __init__(self, pipeline: Pipeline, name: str, path: tuple[Key, ...] = ()) -> None:
        self.pipeline, self.name, self.path = pipeline, name, path
        self.default: Any = UNSET
        """The value for a run that is started without this input."""

    def __getitem__(self, key: Key) -> PipelineInput:
        return PipelineInput(self.pipeline, self.name, (*self.path, key))


class StepOutput:
    """A part of a step's result."""

    def __init__(self, step: Step, path: tuple[Key, ...]) -> None:
        self.step, self.path = step, path
        self.shape = step.output_shape
        for key in path:
            part = part_of(self.shape, key)
            if part is None:
                raise PipelineError(
                    f"pipeline {step.pipeline.name}: step {step.name!r} returns {described(step.output_shape)}, "
                    f"which has no {key!r}. Correct the name, or the return annotation of {step.task.name}."
                )
            self.shape = part

    def __getitem__(self, key: Key) -> StepOutput:
        return StepOutput(self.step, (*self.path, key))


class Step:
    """A task in a pipeline; as an input of another step it stands for its result."""

    def __init__(
        self, pipeline: Pipeline, task: Task[..., Any], name: str, *, options: JobOptions, on_failed: OnStepFailed
    ) -> None:
        self.pipeline = pipeline
        self.task = task
        self.name = name
        self.on_failed = on_failed
        self.inputs: dict[str, Source] = {}
        self.each: str | None = None
        self._options = options
        self._parents: dict[str, Step] = {}
        if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            raise self.error(f"its name must be 1 to {LONGEST_NAME} letters, digits and _ . : -")
        if task.options.limit_by is not None:
            raise self.error(
                f"task {task.name} has `limit_by`, a function, which cannot be stored with a run. "
                f"Use `max_running` alone, or limit the step's queue."
            )

    @property
    def parents(self) -> tuple[str, ...]:
        """Names of the steps that must end before this one starts."""
        return tuple(self._parents)

    @property
    def output_shape(self) -> Shape:
        """The shape of its result, from its task's annotation; a list if the step has many jobs."""
        shape = shape_of(self.task.signature.result_annotation)
        return shape if self.each is None else list_of(shape)

    @property
    def plan(self) -> StepPlan:
        """What a run stores about the step."""
        job = bare_job(self.task, self._options)
        return StepPlan(
            name=self.name,
            task_name=self.task.name,
            parents=self.parents,
            inputs=self.inputs,
            each=self.each,
            on_failed=self.on_failed,
            queue_name=job.queue_name,
            priority=job.priority,
            max_attempts=job.max_attempts,
            limit_key=job.limit_key,
            limit=job.limit,
            max_bytes=self.task.options.limits.max_bytes,
        )

    def __getitem__(self, key: Key) -> StepOutput:
        return StepOutput(self, (key,))

    def __rshift__(self, after: Any) -> Any:
        """`a >> b` runs b after a, even if b does not use a's result; lists of steps work too."""
        for step in after if isinstance(after, list | tuple) else [after]:
            step.follow(self)
        self.pipeline.check_circles()
        return after

    def __rrshift__(self, before: Sequence[Step]) -> Step:
        for step in before:
            self.follow(step)
        self.pipeline.check_circles()
        return self

    def __repr__(self) -> str:
        return f"Step({self.name!r})"

    def error(self, what: str) -> PipelineError:
        """Build an error that names the pipeline and the step."""
        return PipelineError(f"pipeline {self.pipeline.name}, step {self.name!r}: {what}")

    def follow(self, parent: Step) -> None:
        """Run after another step of the same pipeline."""
        if parent.pipeline is not self.pipeline:
            raise self.error(
                f"step {parent.name!r} belongs to pipeline {parent.pipeline.name}. Use steps of this pipeline."
            )
        self._parents[parent.name] = parent

    def take(self, inputs: dict[str, Any], each: Any) -> None:
        """Set the sources of the task's parameters, and check that every parameter has one that fits."""
        parameters = self.task.signature.parameters
        if each is not None:
            self.each, inputs = self._with_each(inputs, each)
        for name, value in inputs.items():
            if name not in parameters:
                raise self.error(f"{self.task.name} has no parameter {name!r}. Its parameters: {listed(parameters)}.")
            source, shape = self._source(value, self._wanted(name), name)
            if name == self.each:
                shape = self._element(name, shape)
            self._check_fit(name, shape)
            self.inputs[name] = source
        missing = [name for name in parameters if name in self.task.signature.required - set(self.inputs)]
        if missing:
            raise self.error(
                f"parameter `{missing[0]}` of {self.task.name} has no source. Add one: "
                f"inputs={{{missing[0]!r}: …}}, with a step, a `pipeline.input(…)` or a value."
            )

    def check_input(self, given: Mapping[str, Raw]) -> None:
        """Check that a run's input matches the annotations of the parameters that take it."""
        for name, source in self.inputs.items():
            if isinstance(source, RunInput) and not source.path:
                annotation = self.task.signature.parameters[name]
                try:
                    msgspec.json.decode(given[source.name], type=self._wanted(name), dec_hook=json_values.from_json)
                except (ValueError, RecursionError) as error:
                    raise self.error(
                        f"input {source.name!r} does not fit parameter `{name}: {json_values.name_of(annotation)}`"
                        f"{', each element of it' if name == self.each else ''}: {error}."
                    ) from error

    def _wanted(self, parameter: str) -> Any:
        """Return the type that a parameter's source must have; a list for the parameter that takes each element."""
        annotation = self.task.signature.parameters[parameter]
        return types.GenericAlias(list, (annotation,)) if parameter == self.each else annotation

    def _with_each(self, inputs: dict[str, Any], each: Any) -> tuple[str, dict[str, Any]]:
        if isinstance(each, Mapping):
            if len(each) != 1:
                raise self.error(f"`each` names {len(each)} parameters: only one can take elements one by one.")
            [(name, value)] = each.items()
            if name in inputs:
                raise self.error(f"parameter `{name}` is in both `inputs` and `each`. Remove it from one of them.")
            return name, {**inputs, name: value}
        left = [name for name in self.task.signature.parameters if name not in inputs]
        required = [name for name in left if name in self.task.signature.required] or left
        if len(required) != 1:
            raise self.error(
                f"it is not clear which parameter of {self.task.name} takes each element; without a source: "
                f"{listed(required)}. Write each={{'parameter': …}}."
            )
        return required[0], {**inputs, required[0]: each}

    def _source(self, value: Any, annotation: Any, parameter: str) -> tuple[Source, Shape]:
        """Convert a parameter's source and return its shape; steps in it become parents."""
        match value:
            case Step():
                return self._output(value, (), value.output_shape)
            case StepOutput():
                return self._output(value.step, value.path, value.shape)
            case PipelineInput():
                if value.pipeline is not self.pipeline:
                    raise self.error(f"`{parameter}` takes an input of another pipeline, {value.pipeline.name}.")
                return RunInput(value.name, value.path), ANY
            case list() | tuple() if any(isinstance(part, Step | StepOutput | PipelineInput) for part in value):
                parts = [self._source(part, Any, parameter) for part in value]
                shapes = tuple(shape for _, shape in parts)
                return Gathered(tuple(source for source, _ in parts)), list_of(one_of(shapes))
            case _:
                what = f"pipeline {self.pipeline.name}, step {self.name!r}: the value for parameter `{parameter}`"
                return Constant(encode_value(value, annotation, what)), shape_of(annotation)

    def _output(self, step: Step, path: tuple[Key, ...], shape: Shape) -> tuple[Source, Shape]:
        self.follow(step)
        may_fail = step.on_failed is OnStepFailed.CONTINUE and step.each is None
        return Output(step.name, path), or_null(shape) if may_fail and shape is not ANY else shape

    def _element(self, parameter: str, shape: Shape) -> Shape:
        if isinstance(shape, msgspec.inspect.UnionType):  # the null of a failed step has no elements
            shape = next(arm for arm in shape.types if not isinstance(arm, msgspec.inspect.NoneType))
        element = element_of(shape)
        if element is None:
            raise self.error(
                f"`{parameter}` should take each element of {described(shape)}, which is not a list. "
                f"Name a list, such as a field of it: each={{{parameter!r}: step['field']}}."
            )
        return element

    def _check_fit(self, parameter: str, shape: Shape) -> None:
        annotation = self.task.signature.parameters[parameter]
        if not fits(shape, shape_of(annotation)):
            raise self.error(
                f"parameter `{parameter}: {json_values.name_of(annotation)}` of {self.task.name} cannot take "
                f"{described(shape)}. Change one of the two annotations, or use another source."
            )


LIMITS = PayloadLimits()


def encode_value(value: Any, annotation: Any, what: str) -> Raw:
    """Encode a value that must match the annotation; the error message begins with `what`."""
    problem = json_values.why_not_encodable(value, LIMITS)
    if problem:
        raise PipelineError(f"{what} {problem}.")
    encoded = json_values.ENCODER.encode(value)
    try:
        msgspec.json.decode(encoded, type=annotation, dec_hook=json_values.from_json)
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"{what} must be {json_values.name_of(annotation)}: {error}.") from error
    return Raw(encoded)


def bare_job(task: Task[..., Any], options: JobOptions) -> NewJob:
    """Build a job of a task without an id and arguments."""
    settled = task.options
    return NewJob(
        id="",
        task_name=task.name,
        payload="{}",
        queue_name=options.queue or settled.queue,
        priority=settled.priority if options.priority is None else options.priority,
        max_attempts=options.max_attempts or settled.retry.max_attempts,
        limit_key=None if settled.max_running is None else task.name,
        limit=settled.max_running if settled.remote else None,
    )


def listed(names: Iterable[str]) -> str:
    """Format names for a message."""
    return ", ".join(f"`{name}`" for name in names) or "none"
