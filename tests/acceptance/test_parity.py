"""The command line and Python can do the same: the table in the documentation is complete in both directions."""

from __future__ import annotations

import inspect
import re
import typing
from functools import cache
from typing import Any

import click
import pytest

from docs.sections import commands
from stagepost import App, AppTask, BatchHandle, Gate, RunHandle, Worker, operations
from stagepost.client.broker import Broker
from stagepost.client.dead_letters import DeadLetters
from stagepost.client.events import Events
from stagepost.client.jobs import Jobs
from stagepost.client.listings import Batches, Gates, Runs
from stagepost.client.queues import Queues
from stagepost.client.schedules import Schedules
from stagepost.client.workers import Workers
from tests.acceptance.pages import CODE, ROOT, text_of
from tests.unit.test_public_api import function_of, public_members, types_in

PAGE = ROOT / "docs" / "how-to" / "operate-from-python.md"
ROW = re.compile(r"^\| `(stagepost [^`]+)` \| (.+) \|$", re.MULTILINE)
ONLY_COMMANDS = {"stagepost dev", "stagepost bench", "stagepost demo"}
OWNERS: dict[str, Any] = {
    "app": App,
    "batch": BatchHandle,
    "gate": Gate,
    "operations": operations,
    "run": RunHandle,
    "task": AppTask,
    "Worker": Worker,
}
COLLECTIONS: dict[str, type] = {
    "batches": Batches,
    "broker": Broker,
    "dead_letters": DeadLetters,
    "events": Events,
    "gates": Gates,
    "jobs": Jobs,
    "queues": Queues,
    "runs": Runs,
    "schedules": Schedules,
    "workers": Workers,
}
collections = pytest.mark.parametrize("kind", COLLECTIONS.values(), ids=COLLECTIONS)


@cache
def rows() -> dict[str, list[str]]:
    """The Python calls of each command."""
    return {command: CODE.findall(calls) for command, calls in ROW.findall(text_of(PAGE))}


def leaf_commands() -> set[str]:
    return {f"stagepost {name}" for name, command in commands() if not isinstance(command, click.Group)}


def methods_of(kind: type) -> set[str]:
    return {name for name in public_members(kind) if name != "__init__"}


def test_the_table_names_every_command_and_no_other() -> None:
    assert rows().keys() == leaf_commands()


def test_every_call_in_the_table_exists() -> None:
    missing = [(command, call) for command, calls in rows().items() for call in calls if not exists(call)]

    assert missing == []
    assert {command for command, calls in rows().items() if not calls} == ONLY_COMMANDS


def exists(call: str) -> bool:
    owner, *path, method = call.split(".")
    found = OWNERS[owner]
    for name in path:
        function = function_of(getattr(found, name))
        assert function is not None
        found = typing.get_type_hints(function)["return"]
    return callable(getattr(found, method, None))


@collections
def test_every_method_of_a_collection_is_in_the_table(kind: type) -> None:
    [name] = [name for name, one in COLLECTIONS.items() if one is kind]
    plain = {method for method in methods_of(kind) if not method.endswith("_async")}
    named = {call.rpartition(".")[2] for calls in rows().values() for call in calls if call.startswith(f"app.{name}.")}

    assert plain == named


@collections
def test_every_method_of_a_collection_has_an_async_twin_with_the_same_signature(kind: type) -> None:
    members = public_members(kind)
    offline = {"plan"}  # names what the broker needs, without asking it or the database
    plain = {name for name in members if not name.endswith("_async")} - {"__init__"}

    assert set(members) - {"__init__"} - plain == {f"{name}_async" for name in plain - offline}
    for name in plain - offline:
        twin = members[f"{name}_async"]
        assert inspect.iscoroutinefunction(twin) or inspect.isasyncgenfunction(twin)
        assert inspect.signature(members[name]).parameters == inspect.signature(twin).parameters
        if inspect.iscoroutinefunction(twin):
            assert inspect.signature(members[name]) == inspect.signature(twin)


@collections
def test_the_types_of_a_collection_can_be_imported(kind: type) -> None:
    import stagepost

    named = {
        found.__name__
        for name, member in public_members(kind).items()
        if name != "__init__" and (function := function_of(member)) is not None
        for annotation in typing.get_type_hints(function).values()
        for found in types_in(annotation)
    }

    assert named - {"Unchanged"} <= {*stagepost.__all__, *operations.__all__}
