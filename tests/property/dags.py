"""Random pipelines in which every result depends on all previous ones, and the expected outcome of their runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Raw

from stagepost.model.identity import new_id
from stagepost.model.pipeline import (
    Constant,
    Gathered,
    NewRun,
    OnStepFailed,
    Output,
    Plan,
    Source,
    StepPlan,
)

QUEUE = "default"
TASK = "node"
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Node:
    """A step: its parents, the list that it takes element by element, and how often its jobs fail."""

    name: str
    parents: tuple[str, ...]
    each: int | str | None
    """A number of elements, or the elements that a parent returned."""
    on_failed: OnStepFailed
    bad: int
    """Jobs fail whose value this number divides; 0 divides none."""

    @property
    def is_list(self) -> bool:
        return self.each is not None


def value_of(arguments: Arguments) -> int:
    """What a job gives: another number for other arguments."""
    given = {name: value for name, value in arguments.items() if name != "bad"}
    return crc32(json.dumps(given, sort_keys=True).encode())


def fails(arguments: Arguments) -> bool:
    """Whether a job fails; `bad` is among its arguments, so that a task in another process can tell."""
    bad: int = arguments["bad"]
    return bad > 0 and value_of(arguments) % bad == 0


def random_nodes(random: Random, *, most: int = 30, are_bad: bool = True) -> list[Node]:
    """A random graph; few of its steps fail, so that most runs get far."""
    nodes: list[Node] = []
    for number in range(random.randint(1, most)):
        parents = tuple(node.name for node in random.sample(nodes, min(len(nodes), random.choice((0, 1, 1, 2, 3)))))
        lists = [node.name for node in nodes if node.name in parents and node.is_list]
        each: int | str | None = random.choice((None, None, random.randint(0, 4), *lists))
        bad = random.choice((0, 0, 0, 0, 0, 0, 1, 2, 3)) if are_bad else 0
        nodes.append(Node(f"n{number}", parents, each, random.choice(list(OnStepFailed)), bad))
    return nodes


def run_of(nodes: list[Node], *, tries: int = 1) -> NewRun:
    run_id = new_id()
    plan = Plan(steps=tuple(_step(node, tries=tries) for node in nodes))
    return NewRun(id=run_id, key=run_id, pipeline="random", plan=plan, input={})


def _step(node: Node, *, tries: int) -> StepPlan:
    taken = [name for name in node.parents if name != node.each]
    inputs: dict[str, Source] = {
        "node": Constant(Raw(msgspec.json.encode(node.name))),
        "bad": Constant(Raw(msgspec.json.encode(node.bad))),
        "given": Gathered(tuple(Output(name) for name in taken)),
    }
    if isinstance(node.each, str):
        inputs["element"] = Output(node.each)
    elif node.each is not None:
        inputs["element"] = Constant(Raw(msgspec.json.encode(list(range(node.each)))))
    return StepPlan(
        name=node.name,
        task_name=TASK,
        parents=node.parents,
        inputs=inputs,
        each="element" if node.is_list else None,
        on_failed=node.on_failed,
        queue_name=QUEUE,
        priority=0,
        max_attempts=tries,
        max_bytes=1_000_000,
    )


@dataclass
class Ended:
    """A job that ended: what it was given, and what it gave; None if it failed."""

    arguments: Arguments
    value: int | None


@dataclass
class Course:
    """How a run of such a graph must go, step by step; knows nothing of databases."""

    nodes: list[Node]
    is_mended: bool = False
    """Nothing fails any more."""
    states: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, list[Arguments]] = field(default_factory=dict)
    """What each step's jobs are given, since it was last started."""
    ended: dict[str, dict[int, Ended]] = field(default_factory=dict)
    is_stopped: bool = False

    def __post_init__(self) -> None:
        self.states = {node.name: "pending" for node in self.nodes}
        self.ended = {node.name: {} for node in self.nodes}
        self.go_on()

    @property
    def running(self) -> set[str]:
        return {name for name, state in self.states.items() if state == "running"}

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def to_run(self, name: str) -> list[tuple[int, Arguments]]:
        """The jobs of a step that must run, without those that completed for the same element before."""
        return [
            (position, arguments)
            for position, arguments in enumerate(self.jobs[name])
            if not self._is_done(name, position, arguments)
        ]

    def go_on(self) -> None:
        """Start and skip until nothing changes."""
        while True:
            before = dict(self.states)
            for node in self.nodes:
                if self.states[node.name] == "pending":
                    self._consider(node)
            if not self.running and self.is_stopped:
                self.states = {name: "skipped" if state == "pending" else state for name, state in self.states.items()}
            if self.states == before:
                return

    def _consider(self, node: Node) -> None:
        if self.is_stopped:
            return
        above = [(self.states[name], self.node(name).on_failed) for name in node.parents]
        if any(state == "skipped" or (state == "failed" and policy == "skip") for state, policy in above):
            self.states[node.name] = "skipped"
        elif all(state in {"completed", "failed"} for state, _ in above):
            self.states[node.name] = "running"
            self.jobs[node.name] = self._arguments(node)
            if not self.to_run(node.name):
                self.end(node.name)

    def end(self, name: str) -> None:
        """Let all jobs of a step end."""
        for position, arguments in self.to_run(name):
            is_bad = not self.is_mended and fails(arguments)
            self.ended[name][position] = Ended(arguments, None if is_bad else value_of(arguments))
        wanted = range(len(self.jobs[name]))
        is_well = all(self.ended[name][position].value is not None for position in wanted)
        self.states[name] = "completed" if is_well else "failed"
        self.is_stopped = self.is_stopped or (not is_well and self.node(name).on_failed == "stop")

    def retry(self) -> None:
        """Nothing fails any more, and all that did not complete is pending again."""
        self.is_mended, self.is_stopped = True, False
        self.states = {name: state if state == "completed" else "pending" for name, state in self.states.items()}
        self.go_on()

    @property
    def outcome(self) -> str:
        if self.running:
            return "running"
        failed = [self.node(name).on_failed for name, state in self.states.items() if state == "failed"]
        return "failed" if "stop" in failed else "completed_with_errors" if failed else "completed"

    def output(self, name: str) -> Any:
        """What a step that ended gives to others."""
        found = [self.ended[name][position].value for position in range(len(self.jobs[name]))]
        if self.node(name).is_list:
            return [value for value in found if value is not None]
        return found[0]

    def _arguments(self, node: Node) -> list[Arguments]:
        given = [self.output(name) for name in node.parents if name != node.each]
        shared: Arguments = {"node": node.name, "bad": node.bad, "given": given}
        if node.each is None:
            return [shared]
        elements = self.output(node.each) if isinstance(node.each, str) else range(node.each)
        return [{**shared, "element": element} for element in elements]

    def _is_done(self, name: str, position: int, arguments: Arguments) -> bool:
        before = self.ended[name].get(position)
        return before is not None and before.value is not None and before.arguments == arguments
