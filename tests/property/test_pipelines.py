"""Random graphs of steps against a model: each runs once, after its inputs, and each policy is obeyed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from stagepost.database import Store
from stagepost.database.migrate import migrate
from stagepost.model.job import LeasedJob
from stagepost.model.outcome import Completed, Refused
from stagepost.store import concluding, leases, runs, settling
from stagepost.store.settlement import Settlement
from tests.conformance.bench import patient_store
from tests.depth import sized
from tests.property.dags import QUEUE, TASK, Course, Node, fails, random_nodes, run_of, value_of

EXAMPLES = {"sqlite": 200, "postgres": 25, "mariadb": 10}


@pytest.fixture(params=list(EXAMPLES))
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    url = "sqlite:///:memory:" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_database")
    store = patient_store(url, pool_size=2)
    migrate(store)
    yield store
    store.close()


def test_every_step_runs_after_its_inputs_and_once(store: Store, request: pytest.FixtureRequest) -> None:
    examples = EXAMPLES[request.node.callspec.params["store"]]

    @seed(7)
    @settings(
        max_examples=sized(examples // 8 + 2, examples, examples * 10),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(chance=st.randoms(use_true_random=False))
    def search(chance: Random) -> None:
        follow(store, random_nodes(chance), chance)

    search()


def follow(store: Store, nodes: list[Node], chance: Random) -> None:
    """Take a run and its model to their end side by side; then mend what failed, and once more."""
    course = Course(nodes)
    run_id = store.run(runs.start(run_of(nodes))).run.id
    to_end(store, run_id, course, chance)
    if course.outcome != "completed":
        store.run(runs.retry(run_id, actor="ada"))
        course.retry()
        to_end(store, run_id, course, chance)
        assert course.outcome == "completed"


def to_end(store: Store, run_id: str, course: Course, chance: Random) -> None:
    flying: list[LeasedJob] = []
    seen: dict[str, list[Any]] = {}
    while True:
        check(store, run_id, course)
        for job in sorted(claim(store), key=lambda job: job.payload):  # their ids, and so their order, are random
            flying.append(job)
            seen.setdefault(node_of(job), []).append(arguments(job))
        check_started(course, seen)
        if not flying:
            break
        job = flying.pop(chance.randrange(len(flying)))
        is_bad = not course.is_mended and fails(arguments(job))
        outcome = Refused("bad") if is_bad else Completed(str(value_of(arguments(job))))
        store.run(settling.settle([Settlement.of(job, outcome)]))
        for _ in range(chance.choice((1, 1, 2))):
            store.run(concluding.conclude(job.batch_id or ""))
        if node_of(job) not in {node_of(other) for other in flying}:
            course.end(node_of(job))
            course.go_on()


def check(store: Store, run_id: str, course: Course) -> None:
    run = store.run(runs.get(run_id))
    assert {name: str(record.state) for name, record in run.steps.items()} == course.states
    assert run.state == course.outcome


def check_started(course: Course, seen: dict[str, list[Any]]) -> None:
    """Every job of every step that runs was enqueued, once and with the arguments that its inputs give."""
    for name in course.running:
        expected = [given for _, given in course.to_run(name)]
        assert sorted(seen[name], key=str) == sorted(expected, key=str)


def claim(store: Store) -> list[LeasedJob]:
    lease = timedelta(hours=1)
    return store.run(leases.claim(QUEUE, owner="ada", task_names=[TASK], slots=1000, lease=lease))


def arguments(job: LeasedJob) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(job.payload)
    return decoded


def node_of(job: LeasedJob) -> str:
    return str(arguments(job)["node"])
