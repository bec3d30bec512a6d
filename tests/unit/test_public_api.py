"""What `import stagepost` offers: complete, documented, and the same in both colours."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stagepost
from stagepost import (
    App,
    AppTask,
    BatchHandle,
    BatchState,
    Client,
    Gate,
    JobContext,
    JobHandle,
    JobState,
    RunHandle,
    RunState,
    Worker,
    errors,
    operations,
)
from stagepost.client.core import AppCore

MACHINERY = {
    "Batches",
    "Broker",
    "DeadLetters",
    "Events",
    "Gates",
    "JobKeywords",
    "Jobs",
    "JobSeries",
    "LeasedJob",
    "NewChild",
    "Queues",
    "Request",
    "Runs",
    "Schedules",
    "Store",
    "Submission",
    "Task",
    "TaskDecorator",
    "TaskKeywords",
    "Transaction",
    "Workers",
}
"""Types that public objects show to the worker, or give to a caller; applications need not name them."""

public_classes = pytest.mark.parametrize(
    "kind",
    [thing for thing in (getattr(stagepost, name) for name in stagepost.__all__) if inspect.isclass(thing)],
    ids=lambda kind: kind.__name__,
)


def public_members(kind: type) -> dict[str, Any]:
    """What a class of ours defines under a public name, and its constructor; not the internal parts of an app."""
    own = {
        name: value
        for base in kind.__mro__
        if base.__module__.startswith("stagepost") and base is not AppCore
        for name, value in vars(base).items()
    }
    return {name: value for name, value in own.items() if not name.startswith("_") or name == "__init__"}


def function_of(member: object) -> Callable[..., Any] | None:
    """The function behind a method, property or cached property."""
    for attribute in ("__func__", "fget", "func"):
        member = getattr(member, attribute, None) or member
    return member if inspect.isfunction(member) else None


def iterates(member: Callable[..., Any]) -> bool:
    """Whether it is used with `async for` instead of `await`."""
    return typing.get_origin(typing.get_type_hints(member).get("return")) is AsyncIterator


def types_in(annotation: Any) -> Iterator[type]:
    """Every class of ours that an annotation names."""
    if inspect.isclass(annotation) and annotation.__module__.startswith("stagepost"):
        yield annotation
    for part in typing.get_args(annotation):
        yield from types_in(part)


def test_all_is_sorted_and_names_each_thing_once() -> None:
    assert stagepost.__all__ == sorted(set(stagepost.__all__))


def test_all_lists_exactly_the_public_names() -> None:
    source = ast.parse(Path(stagepost.__file__).read_text(encoding="utf-8"))
    imported = [
        alias.asname or alias.name
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("stagepost.")
        for alias in node.names
    ]

    assert sorted(imported) == stagepost.__all__
    assert all(hasattr(stagepost, name) for name in stagepost.__all__)


def test_errors_that_handlers_raise_are_at_the_top_and_others_in_their_own_module() -> None:
    at_the_top = set(errors.__all__) & set(stagepost.__all__)

    assert at_the_top == {"Cancelled", "Permanent", "Retryable", "Snooze", "StagepostError"}


def test_there_are_few_names_at_the_top() -> None:
    assert len(stagepost.__all__) <= 60


@pytest.mark.parametrize(
    "kind",
    [App, AppTask, BatchHandle, Client, Gate, JobContext, JobHandle, RunHandle, Worker],
    ids=lambda kind: kind.__name__,
)
def test_types_of_public_methods_can_be_imported_from_the_top(kind: type) -> None:
    named = {
        found.__name__
        for name, member in public_members(kind).items()
        if name != "__init__" and (function := function_of(member)) is not None
        for annotation in typing.get_type_hints(function).values()
        for found in types_in(annotation)
    }

    assert named - MACHINERY <= {*stagepost.__all__, *operations.__all__}


def test_a_handler_can_use_its_job_and_nothing_of_the_worker() -> None:
    names = {name.removesuffix("_async") for name in public_members(JobContext) if name != "__init__"}

    assert names == {
        *(
            "id",
            "task",
            "queue",
            "priority",
            "attempt",
            "failures",
            "crashes",
            "max_attempts",
            "available_at",
            "worker",
            "trace",
        ),
        *("schedule", "due_at", "is_cancelled", "stop_reason", "raise_if_cancelled", "report", "will_retry"),
        *("submit", "submit_many", "using", "then", "children"),
        *("complete", "fail", "snooze", "ack", "nack"),
    }


def test_an_app_shows_applications_what_they_may_use() -> None:
    names = {name.removesuffix("_async") for name in public_members(App) if name != "__init__"}

    assert names == {
        *("client", "task", "on_alert", "schedule", "pipeline", "batch", "gate", "job", "rate_limiter"),
        *("enqueue_many", "transaction", "migrate", "close"),
        *("jobs", "dead_letters", "queues", "schedules", "workers", "batches", "gates", "runs", "events", "broker"),
        *("health", "asyncapi"),
        *("around_attempt", "on_failure", "on_worker_start", "on_worker_stop"),
    }


@public_classes
def test_every_public_class_says_what_it_is(kind: type) -> None:
    assert (vars(kind).get("__doc__") or "").strip()


@public_classes
def test_every_public_method_says_what_it_does(kind: type) -> None:
    silent = [
        name
        for name, member in public_members(kind).items()
        if name != "__init__" and (function := function_of(member)) is not None and not function.__doc__
    ]

    assert not silent


@pytest.mark.parametrize("name", ["close", "enqueue_many", "health", "migrate"])
def test_every_app_method_that_uses_the_database_has_an_async_form(name: str) -> None:
    assert f"{name}_async" in public_members(App)


def test_every_client_method_has_a_plain_and_an_async_form() -> None:
    members = public_members(Client).keys() - {"__init__", "using"}
    plain = {name for name in members if not name.endswith("_async")}

    assert members == plain | {f"{name}_async" for name in plain}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in (App, AppTask, Client, Gate, JobContext, JobHandle, RunHandle)
        for name in public_members(kind)
        if name.endswith("_async") and not iterates(public_members(kind)[name])
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_an_async_method_has_the_signature_of_its_plain_twin(kind: type, name: str) -> None:
    awaited, plain = public_members(kind)[name], public_members(kind)[name.removesuffix("_async")]

    assert inspect.iscoroutinefunction(awaited)
    assert inspect.signature(plain) == inspect.signature(awaited)


@pytest.mark.parametrize("name", sorted(name for name in public_members(BatchHandle) if name.endswith("_async")))
def test_a_batchs_async_methods_have_the_signatures_of_their_plain_twins(name: str) -> None:
    """Types may differ: what is async takes async iterables, too."""
    members = public_members(BatchHandle)
    awaited, plain = members[name], members[name.removesuffix("_async")]

    assert inspect.iscoroutinefunction(awaited) or inspect.isasyncgenfunction(awaited)
    calls = [
        [
            (parameter.name, parameter.kind, parameter.default)
            for parameter in inspect.signature(one).parameters.values()
        ]
        for one in (plain, awaited)
    ]
    assert calls[0] == calls[1]


@pytest.mark.parametrize("kind", [JobHandle, BatchHandle, RunHandle], ids=lambda kind: kind.__name__)
def test_handles_share_their_words(kind: type) -> None:
    """What needs the database is a method in both colours, and acting returns the state afterwards or a number."""
    members = public_members(kind)

    for name in ("state", "wait", "cancel", "retry"):
        assert inspect.isfunction(members[name])
        assert inspect.iscoroutinefunction(members[f"{name}_async"])
    for name in ("state", "cancel"):
        assert typing.get_type_hints(members[name])["return"] in {JobState, BatchState, RunState}
    assert not [name for name, member in members.items() if isinstance(member, property)]


def test_every_batch_method_has_a_plain_and_an_async_form() -> None:
    members = {name for name in public_members(BatchHandle) if name not in {"__init__", "key"}}
    plain = {name for name in members if not name.endswith("_async")}

    assert members == plain | {f"{name}_async" for name in plain}
