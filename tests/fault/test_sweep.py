"""Proof by exhaustion: an error at every single call of a job's life, before and after it took effect."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator

import pytest

from tests.depth import sized
from tests.fault.backends import Backend
from tests.fault.injection import Blow, Injection, Injector
from tests.fault.lives import Life, facts_of
from tests.fault.trapped import Moment

FEWEST_CALLS, MOST_CALLS = 30, 200
STRIDE = sized(12, 1)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Thousands of errors on purpose need not be logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("blow", Blow)
def test_a_job_survives_an_error_at_every_call_of_its_life(backend: Backend, blow: Blow) -> None:
    for number in itertools.count(1, STRIDE):
        injectors = [live(backend, Injection(number, moment, blow)) for moment in Moment]
        if not any(injector.has_struck for injector in injectors):
            break

    assert FEWEST_CALLS < number < MOST_CALLS, f"a life of {number} calls"


def live(backend: Backend, injection: Injection | None) -> Injector:
    """Lead one life and check how it ended."""
    injector = Injector(injection, backend.dialect.name)
    life = Life(backend, injector)
    asyncio.run(life.run())
    facts = facts_of(life)
    where = f"{injection}: {injector.calls[injection.at - 1] if injection and injector.has_struck else 'no call'}"
    assert facts["state"] == "completed", f"{where}: {facts}"
    assert facts["effects are of the last attempt"] == [True], f"{where}: {facts}"
    assert facts["live"] == 0, f"{where}: {facts}"
    assert facts["pools in use"] == [0, 0, 0], f"{where}: {facts}"
    # One failure on purpose; another one only where the handler's own transaction was hit.
    assert 1 <= facts["failures"] <= 2, f"{where}: {facts}"
    # What was leased unknowingly is given back; only a dead process leaves a lease to expire.
    assert facts["crashes"] <= int(injection is not None and injection.blow is Blow.DEATH), f"{where}: {facts}"
    return injector
