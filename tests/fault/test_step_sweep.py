"""Proof by exhaustion: an error at every single call that ends a step of a pipeline and starts the next."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from stagepost.database import Store
from stagepost.database.connection import database_at
from stagepost.errors import StoreUnavailable
from stagepost.model.batch import BatchState
from stagepost.model.job import LeasedJob
from stagepost.model.outcome import Completed
from stagepost.model.pipeline import Output, RunState
from stagepost.store import batches, concluding, leases, runs, settling
from stagepost.store.settlement import Settlement
from stagepost.testing.clock import ManualClock
from tests.conformance.pipelines import QUEUE, new_run, step
from tests.conformance.samples import LEASE
from tests.depth import sized
from tests.fault.backends import Backend
from tests.fault.injection import Blow, Injection, Injector, Killed
from tests.fault.trapped import Moment, TrappedDatabase

STEPS = (
    step("cut"),
    step("speak", {"part": Output("cut")}, each="part"),
    step("mix", {"parts": Output("speak")}),
)
TASKS = [one.task_name for one in STEPS]
FEWEST_CALLS, MOST_CALLS = 15, 80
MOST_TRIES = 3
STRIDE = sized(12, 6, 1)
"""On servers, where a run takes long, not every call."""
SQLITE_STRIDE = sized(4, 1)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Hundreds of errors on purpose need not be logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    """Without faults: what happens before, after, and in the process that takes over."""
    with contextlib.closing(Store.at(backend.url)) as store:
        store.clock = ManualClock()
        yield store


@pytest.mark.parametrize("blow", Blow)
def test_a_join_starts_once_whatever_call_of_the_last_end_fails(backend: Backend, store: Store, blow: Blow) -> None:
    """F66."""
    for number in itertools.count(1, SQLITE_STRIDE if backend.name == "sqlite" else STRIDE):
        injectors = [live(backend, store, Injection(number, moment, blow)) for moment in Moment]
        if not any(injector.has_struck for injector in injectors):
            break

    assert FEWEST_CALLS < number < MOST_CALLS, f"a conclusion of {number} calls"


def live(backend: Backend, store: Store, injection: Injection) -> Injector:
    """Lead one run through three steps, with an error in the conclusion that starts the last of them."""
    run_id = store.run(runs.start(new_run(*STEPS))).run.id
    ran = Counter(settled(store, "[1,2]"))
    for batch_id in set(ran):
        store.run(concluding.conclude(batch_id))
    speak = settled(store, '"a.wav"')
    injector = Injector(injection, backend.dialect.name)
    conclude(backend, store, injector, speak[0])
    mix = settled(store, "null")
    for batch_id in mix:
        store.run(concluding.conclude(batch_id))

    run = store.run(runs.get(run_id))
    assert (run.state, len(ran), len(speak), len(mix)) == (RunState.COMPLETED, 1, 2, 1), f"{injection}: {run.steps}"
    assert [len(record.batches) for record in run.steps.values()] == [1, 1, 1], f"{injection}: {run.steps}"
    assert settled(store, "null") == [], f"{injection}: something ran once more"
    return injector


def settled(store: Store, result: str) -> list[str]:
    """Run all that is queued; returns the jobs' batches."""
    jobs: list[LeasedJob] = store.run(leases.claim(QUEUE, owner="w", task_names=TASKS, slots=100, lease=LEASE))
    store.run(settling.settle([Settlement.of(job, Completed(result)) for job in jobs]))
    return [job.batch_id or "" for job in jobs]


def conclude(backend: Backend, store: Store, injector: Injector, batch_id: str) -> None:
    """As the worker does that ended the last job: again if it failed. If it dies, upkeep does in its place."""
    database = TrappedDatabase(database_at(backend.url), injector)
    faulty = Store(database, clock=store.clock, pool_size=1, pause=lambda _seconds: None)
    try:
        for _ in range(MOST_TRIES):
            with contextlib.suppress(StoreUnavailable):
                concluded = faulty.run(concluding.try_conclude(batch_id))
                assert concluded is not None
                assert concluded.state is BatchState.DONE
                break
        assert faulty.pool.in_use == 0
    except Killed:
        assert store.run(batches.idle_batches()) in ([batch_id], [])
        store.run(concluding.conclude(batch_id))
    finally:
        faulty.close()
