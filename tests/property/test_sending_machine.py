"""The store of carried queues against the model, with the worst possible broker; see test_job_machine.py."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tests.property.search import NIGHTLY, Backend, PlantedMutant, demand_that_it_finds, planted
from tests.property.sending import SendingMachine, SendingWorld

BACKENDS = (
    Backend("memory", examples=60, seed=11),
    Backend("file", examples=4, seed=12),
    Backend("postgres", examples=20, seed=13),
    Backend("mariadb", examples=20, seed=14),
)
MACHINE: Any = SendingMachine


@pytest.mark.timeout(0 if NIGHTLY else 600)
@pytest.mark.parametrize(
    ("world_url", "backend"), [(b.name, b) for b in BACKENDS], ids=[b.name for b in BACKENDS], indirect=["world_url"]
)
def test_the_store_does_what_the_model_does_with_messages(world_url: str, backend: Backend) -> None:
    with closing(SendingWorld(world_url)) as world:
        backend.search(MACHINE, world)


MUTANTS: dict[str, PlantedMutant] = {
    "a mark is not fenced by its attempt": PlantedMutant(
        "mark_sent", "and attempts = (message.value ->> 'attempt') - 1", ""
    ),
    "a mark is not fenced by the state": PlantedMutant("mark_sent", "state = 'queued' and ", ""),
    "a delivery is not fenced by its attempt": PlantedMutant(
        "claim_delivered",
        "and job.attempts = (delivery.value ->> 'attempt') - 1",
        "",
    ),
    "a delivery starts what runs": PlantedMutant("claim_delivered", "job.state = 'queued' and ", ""),
    "a delivery leaves the mark": PlantedMutant("claim_delivered", "    sent_at = null,\n", ""),
    "a delivery starts a paused queue": PlantedMutant(
        "claim_delivered", "and paused_at is not null", "and paused_at < 0"
    ),
    "a delivery starts jobs of other queues": PlantedMutant("claim_delivered", "and job.queue_name = :queue_name", ""),
    "a claim takes what was sent": PlantedMutant("claim_jobs", "and sent_at is null", ""),
    "what was sent is sent again": PlantedMutant("unsent_jobs", "and sent_at is null", ""),
    "a relay does not see that all queues are paused": PlantedMutant(
        "unsent_jobs", "(:queue_name, '*')", "(:queue_name)"
    ),
    "a relay forgets priorities": PlantedMutant(
        "unsent_jobs", "order by priority desc, available_at", "order by available_at"
    ),
    "a put-back leaves the mark": PlantedMutant("put_back_jobs", "    sent_at = null,\n", ""),
    "a put-back touches what runs": PlantedMutant("put_back_jobs", "\n  and state = 'queued'", ""),
    "an unknown task comes back at once": PlantedMutant("put_back_jobs", "then :now + :delay_us", "then :now"),
    "new arguments are not sent": PlantedMutant("replace_arguments", "    sent_at = null,\n", ""),
    "young messages are lost, too": PlantedMutant("sent_jobs", "sent_at <= :now - :older_us", "sent_at <= :now"),
}


@planted(
    MUTANTS,
    "a mark is not fenced by its attempt",
    "a delivery is not fenced by its attempt",
    "what was sent is sent again",
)
def test_the_machine_finds_a_planted_mutant(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    demand_that_it_finds(MUTANTS[mutant], MACHINE, SendingWorld, monkeypatch)
