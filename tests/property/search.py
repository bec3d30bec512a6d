"""How hypothesis searches for steps after which store and model differ, and proof that it finds them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, NamedTuple
from unittest.mock import patch

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from stagepost.database import dialect
from tests.depth import DEPTH, Depth, sized
from tests.property.world import World

NIGHTLY = DEPTH is Depth.NIGHT
STEPS = 100 if NIGHTLY else 50

Machine = Callable[[World], RuleBasedStateMachine]


class Backend(NamedTuple):
    """How far to search on one database, and from which seed."""

    name: str
    examples: int
    seed: int

    def search(self, machine: Machine, world: World) -> None:
        """Search; at night longer, and elsewhere every time."""
        examples = sized(max(4, self.examples // 8), self.examples, self.examples * 20)
        search(machine, world, examples=examples, seed=None if NIGHTLY else self.seed)


class PlantedMutant(NamedTuple):
    """A change of a statement for the worse."""

    statement: str
    original: str
    replacement: str
    seed: int = 5
    """Where to begin; from some places a rare sequence of steps is found sooner."""


def planted(mutants: Mapping[str, PlantedMutant], *quick: str) -> pytest.MarkDecorator:
    """Plant each of them in the proof, and the quick ones in `./dev test`."""
    names = [name if name in quick else pytest.param(name, marks=pytest.mark.prove) for name in mutants]
    return pytest.mark.parametrize("mutant", names)


def search(machine: Machine, world: World, *, examples: int, seed: int | None, shrinks: bool = True) -> None:
    """Run the machine on `examples` random sequences of steps."""

    def begin() -> RuleBasedStateMachine:
        return machine(world)

    factory: Any = begin if seed is None else hypothesis.seed(seed)(begin)
    if blob := os.environ.get("STAGEPOST_REPRODUCE"):
        factory = hypothesis.reproduce_failure(hypothesis.__version__, blob.encode())(factory)
    run_state_machine_as_test(
        factory,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink] if shrinks else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def demand_that_it_finds(
    mutant: PlantedMutant, machine: Machine, world: Callable[[str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plant a mutant in SQLite's statements; the search must come upon it."""
    read = dialect._source
    assert mutant.original in read("sqlite", mutant.statement), "the mutant no longer fits its statement"

    def mutated(dialect_name: str, name: str) -> str:
        source = read(dialect_name, name)
        return source.replace(mutant.original, mutant.replacement) if name == mutant.statement else source

    monkeypatch.setattr(dialect, "_source", mutated)
    with (
        patch.dict(dialect.SQLITE._scripts, clear=True),
        closing(world("sqlite:///:memory:")) as planted,
        pytest.raises((AssertionError, sqlite3.Error)),
    ):
        search(machine, planted, examples=300, seed=mutant.seed, shrinks=False)
