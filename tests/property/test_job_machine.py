"""The store against the model: hypothesis searches for steps after which their rows differ.

A failure prints the steps it takes and a line `@reproduce_failure(version, b'...')`. Take those steps again with

    STAGEPOST_REPRODUCE='...' ./dev run pytest tests/property/test_job_machine.py -k 'model and <database>'

STAGEPOST_NIGHTLY=1 searches longer, and elsewhere every time; what it finds is reproduced with it set, too.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from stagepost.store import dialect
from tests.property.machine import JobMachine
from tests.property.world import World

NIGHTLY = bool(os.environ.get("STAGEPOST_NIGHTLY"))


class Backend(NamedTuple):
    """How far to search on one database in CI, and from which seed."""

    name: str
    examples: int
    seed: int


BACKENDS = (
    Backend("memory", examples=300, seed=1),
    Backend("file", examples=20, seed=2),
    Backend("postgres", examples=100, seed=3),
    Backend("mariadb", examples=100, seed=4),
)
STEPS = 100 if NIGHTLY else 50


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    match request.param:
        case "memory":
            url = "sqlite:///:memory:"
        case "file":
            url = f"sqlite:///{tmp_path}/stagepost.db"
        case server:
            url = request.getfixturevalue(f"{server}_database")
    world = World(url)
    yield world
    world.close()


def search(world: World, kind: Any = JobMachine, *, examples: int, seed: int | None, shrinks: bool = True) -> None:
    """Run a machine on `examples` random sequences of steps."""

    def machine() -> JobMachine:
        made: JobMachine = kind(world)
        return made

    factory: Any = machine if seed is None else hypothesis.seed(seed)(machine)
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


@pytest.mark.timeout(0 if NIGHTLY else 120)
@pytest.mark.parametrize(
    ("world", "backend"), [(b.name, b) for b in BACKENDS], ids=[b.name for b in BACKENDS], indirect=["world"]
)
def test_the_store_does_what_the_model_does(world: World, backend: Backend) -> None:
    if NIGHTLY:
        search(world, examples=backend.examples * 20, seed=None)
    else:
        search(world, examples=backend.examples, seed=backend.seed)


MUTANTS: dict[str, tuple[str, str, str]] = {
    "an end is not fenced by its attempt": ("end_jobs", "job.attempts = change.value ->> 'attempt' and ", ""),
    "an end is not fenced by its owner": (
        "end_jobs",
        " and coalesce(job.locked_by, '') = change.value ->> 'owner'",
        "",
    ),
    "a renewal is not fenced by its owner": ("renew_leases", " and locked_by = :owner", ""),
    "a crash is not counted": ("reschedule_jobs", "crashes + coalesce(change.value ->> 'crashes', 0)", "crashes"),
    "a request to stop is forgotten": ("reschedule_jobs", "and cancel_requested_at is null", ""),
    "a due job passes its limit": ("promote_due_jobs", "else 'blocked'", "else 'queued'"),
    "a paused queue goes on": ("claim_jobs", "and paused_at is not null", "and paused_at < 0"),
    "priorities are ignored": ("claim_jobs", "order by priority desc, available_at", "order by available_at"),
    "a repeated enqueue runs the job again": (
        "insert_jobs",
        "where not exists",
        "where 1 or not exists",
    ),
    "a restart is recorded wrongly": ("restart_jobs", "select id, state, ", "select id, 'lost', "),
    "a job is enqueued and not counted": ("insert_job", "else state end, 1", "else state end, 0"),
    "an end is not counted": ("end_jobs", "ended.state, count(*)", "ended.state, 0"),
    "a move is dropped": ("record_moves", "from json_each(:moves)", "from json_each(:moves) where 0"),
    "a fold loses what went away": ("fold_moves", "having sum(jobs) <> 0", "having sum(jobs) > 0"),
    "a move is folded again": (
        "fold_moves",
        "delete from stagepost_move\nwhere id",
        "delete from stagepost_move\nwhere -id",
    ),
}
"""Planted by name: the statement, what is replaced in it, and by what."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_machine_finds_a_planted_mutant(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statement, original, replacement = MUTANTS[mutant]
    read = dialect._source
    assert original in read("sqlite", statement), "the mutant no longer fits its statement"

    def mutated(dialect_name: str, name: str) -> str:
        source = read(dialect_name, name)
        return source.replace(original, replacement) if name == statement else source

    monkeypatch.setattr(dialect, "_source", mutated)
    with (
        patch.dict(dialect.SQLITE._scripts, clear=True),
        closing(World("sqlite:///:memory:")) as world,
        pytest.raises((AssertionError, sqlite3.Error)),
    ):
        search(world, examples=300, seed=5, shrinks=False)
