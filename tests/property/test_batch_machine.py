"""Batches and gates against the model, as `test_job_machine.py` does it for jobs, which also says how to reproduce."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.property.batch_machine import BatchMachine, batch_world
from tests.property.search import NIGHTLY, Backend, PlantedMutant, demand_that_it_finds, planted

BACKENDS = (
    Backend("memory", examples=40, seed=11),
    Backend("file", examples=4, seed=12),
    Backend("postgres", examples=15, seed=13),
    Backend("mariadb", examples=12, seed=14),
)


@pytest.mark.timeout(0 if NIGHTLY else 600)
@pytest.mark.parametrize(
    ("world_url", "backend"), [(b.name, b) for b in BACKENDS], ids=[b.name for b in BACKENDS], indirect=["world_url"]
)
def test_batches_do_what_the_model_does(world_url: str, backend: Backend) -> None:
    with closing(batch_world(world_url)) as world:
        backend.search(BatchMachine, world)


MUTANTS: dict[str, PlantedMutant] = {
    "an end is not counted for its batch": PlantedMutant(
        "end_jobs", "where ended.batch_id is not null", "where ended.batch_id = ''", seed=20
    ),
    "a cursor moves back": PlantedMutant("move_cursor", "position = :position", "position = :position - 1"),
    "waived items stay failed": PlantedMutant("waive_jobs", "set state = 'waived'", "set state = state", seed=13),
    "a gate opens and nobody counts it": PlantedMutant("open_gate", "openings + 1", "openings"),
    "a batch is done again and again": PlantedMutant("finish_batch", "set state = 'done'", "set state = 'sealed'"),
}


@planted(MUTANTS, "an end is not counted for its batch", "a gate opens and nobody counts it")
def test_the_machine_finds_a_planted_mutant(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    demand_that_it_finds(MUTANTS[mutant], BatchMachine, batch_world, monkeypatch)
