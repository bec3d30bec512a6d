"""The store of carried queues against the model, with a broker that does its worst; see test_job_machine.py."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from stagepost.store import dialect
from tests.property.sending import SendingMachine, SendingWorld
from tests.property.test_job_machine import NIGHTLY, Backend, search

BACKENDS = (
    Backend("memory", examples=100, seed=11),
    Backend("postgres", examples=30, seed=13),
    Backend("mariadb", examples=30, seed=14),
)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SendingWorld]:
    url = "sqlite:///:memory:" if request.param == "memory" else request.getfixturevalue(f"{request.param}_database")
    with closing(SendingWorld(url)) as world:
        yield world


@pytest.mark.timeout(0 if NIGHTLY else 120)
@pytest.mark.parametrize(
    ("world", "backend"), [(b.name, b) for b in BACKENDS], ids=[b.name for b in BACKENDS], indirect=["world"]
)
def test_the_store_does_what_the_model_does_with_messages(world: SendingWorld, backend: Backend) -> None:
    if NIGHTLY:
        search(world, SendingMachine, examples=backend.examples * 20, seed=None)
    else:
        search(world, SendingMachine, examples=backend.examples, seed=backend.seed)


MUTANTS: dict[str, tuple[str, str, str]] = {
    "a mark is not fenced by its attempt": ("mark_sent", "and attempts = (message.value ->> 'attempt') - 1", ""),
    "a mark is not fenced by the state": ("mark_sent", "state = 'queued' and ", ""),
    "a delivery is not fenced by its attempt": (
        "claim_delivered",
        "and job.attempts = (delivery.value ->> 'attempt') - 1",
        "",
    ),
    "a delivery starts what runs": ("claim_delivered", "job.state = 'queued' and ", ""),
    "a delivery leaves the mark": ("claim_delivered", "    sent_at = null,\n", ""),
    "a delivery starts a paused queue": ("claim_delivered", "and paused_at is not null", "and paused_at < 0"),
    "a delivery starts jobs of other queues": ("claim_delivered", "and job.queue_name = :queue_name", ""),
    "a claim takes what was sent": ("claim_jobs", "and sent_at is null", ""),
    "what was sent is sent again": ("unsent_jobs", "and sent_at is null", ""),
    "a relay does not see that all queues are paused": ("unsent_jobs", "(:queue_name, '*')", "(:queue_name)"),
    "a relay forgets priorities": ("unsent_jobs", "order by priority desc, available_at", "order by available_at"),
    "a put-back leaves the mark": ("put_back_jobs", "    sent_at = null,\n", ""),
    "a put-back touches what runs": ("put_back_jobs", "\n  and state = 'queued'", ""),
    "an unknown task comes back at once": ("put_back_jobs", "then :now + :delay_us", "then :now"),
    "new arguments are not sent": ("replace_arguments", "    sent_at = null,\n", ""),
    "young messages are lost, too": ("sent_jobs", "sent_at <= :now - :older_us", "sent_at <= :now"),
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
        closing(SendingWorld("sqlite:///:memory:")) as world,
        pytest.raises((AssertionError, sqlite3.Error)),
    ):
        search(world, SendingMachine, examples=300, seed=15, shrinks=False)
