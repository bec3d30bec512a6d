"""The store against the model: hypothesis searches for steps after which their rows differ.

A failure prints the steps it takes and a line `@reproduce_failure(version, b'...')`. Take those steps again with

    STAGEPOST_REPRODUCE='...' ./dev run pytest tests/property/test_job_machine.py -k 'model and <database>'

STAGEPOST_TEST_DEPTH=night searches longer, and elsewhere every time; what it finds is reproduced with it set, too.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.property.machine import JobMachine
from tests.property.search import NIGHTLY, Backend, PlantedMutant, demand_that_it_finds, planted
from tests.property.world import World

BACKENDS = (
    Backend("memory", examples=200, seed=1),
    Backend("file", examples=10, seed=2),
    Backend("postgres", examples=60, seed=3),
    Backend("mariadb", examples=40, seed=4),
)


@pytest.mark.timeout(0 if NIGHTLY else 600)
@pytest.mark.parametrize(
    ("world_url", "backend"), [(b.name, b) for b in BACKENDS], ids=[b.name for b in BACKENDS], indirect=["world_url"]
)
def test_the_store_does_what_the_model_does(world_url: str, backend: Backend) -> None:
    with closing(World(world_url)) as world:
        backend.search(JobMachine, world)


MUTANTS: dict[str, PlantedMutant] = {
    "an end is not fenced by its attempt": PlantedMutant(
        "end_jobs", "job.attempts = change.value ->> 'attempt' and ", "", seed=20
    ),
    "an end is not fenced by its owner": PlantedMutant(
        "end_jobs",
        " and coalesce(job.locked_by, '') = change.value ->> 'owner'",
        "",
    ),
    "a renewal is not fenced by its owner": PlantedMutant("renew_leases", " and locked_by = :owner", ""),
    "a crash is not counted": PlantedMutant(
        "reschedule_jobs", "crashes + coalesce(change.value ->> 'crashes', 0)", "crashes"
    ),
    "a request to stop is forgotten": PlantedMutant("reschedule_jobs", "and cancel_requested_at is null", "", seed=21),
    "a due job passes its limit": PlantedMutant("promote_due_jobs", "else 'blocked'", "else 'queued'"),
    "a paused queue goes on": PlantedMutant("claim_jobs", "and paused_at is not null", "and paused_at < 0"),
    "priorities are ignored": PlantedMutant(
        "claim_jobs", "order by priority desc, available_at", "order by available_at"
    ),
    "a repeated enqueue runs the job again": PlantedMutant(
        "insert_jobs",
        "where not exists",
        "where 1 or not exists",
    ),
    "a restart is recorded wrongly": PlantedMutant("restart_jobs", "select id, state, ", "select id, 'lost', "),
    "a job is enqueued and not counted": PlantedMutant("insert_job", "else state end, 1", "else state end, 0"),
    "an end is not counted": PlantedMutant("end_jobs", "ended.state, count(*)", "ended.state, 0"),
    "a move is dropped": PlantedMutant("record_moves", "from json_each(:moves)", "from json_each(:moves) where 0"),
    "a fold loses what went away": PlantedMutant("fold_moves", "having sum(jobs) <> 0", "having sum(jobs) > 0"),
    "a move is folded again": PlantedMutant(
        "fold_moves",
        "delete from stagepost_move\nwhere id",
        "delete from stagepost_move\nwhere -id",
    ),
}


@planted(
    MUTANTS, "an end is not fenced by its owner", "a crash is not counted", "an end is not counted", "a move is dropped"
)
def test_the_machine_finds_a_planted_mutant(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    demand_that_it_finds(MUTANTS[mutant], JobMachine, World, monkeypatch)
