"""Limits and rates under any order of events: never exceeded, and no job waits forever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagepost.database import Store
from stagepost.database.migrate import migrate
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob, NewJob
from stagepost.model.limits import LimitRules, TaskRule
from stagepost.model.outcome import Completed, Released
from stagepost.model.rate import RateLimit
from stagepost.store import jobs, leases, settling
from stagepost.store.counting import PARTS, find_drift
from stagepost.store.limits import block_front
from stagepost.store.settlement import Settlement
from stagepost.store.unblocking import own_blocked_names, sweep, unblock_next
from stagepost.testing.clock import ManualClock
from tests.conformance.bench import patient_store, tables_of
from tests.depth import sized
from tests.limits import QUEUE, TASK, claiming

RATE = RateLimit("speech", per_second=4, burst=2)
METERED, BOTH, PLAIN = "metered", "both", "plain"
KEYS = ("a", "b", "c")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.sampled_from([TASK, TASK, METERED, BOTH, PLAIN]), st.sampled_from(KEYS)),
        st.tuples(st.just("claim"), st.sampled_from(["worker-a", "worker-b"]), st.integers(1, 4)),
        st.tuples(st.just("finish"), st.integers(0, 9), st.sampled_from(["told", "lost", "released"])),
        st.tuples(st.just("limit"), st.integers(1, 3), st.none()),
        st.tuples(st.just("advance"), st.sampled_from([1, 60_000, 100_000, 250_000, 3_000_000]), st.none()),
        st.tuples(st.just("clear"), st.none(), st.none()),
    ),
    min_size=5,
    max_size=40,
)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    store = patient_store("sqlite:///:memory:", pool_size=1)
    migrate(store)
    yield store
    store.close()


@dataclass
class World:
    """Workers that share one store, and what they saw."""

    store: Store
    clock: ManualClock
    limit: int = 2
    running: list[LeasedJob] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """When jobs with a rate started, or will: at the instants of their tokens."""

    @property
    def rules(self) -> LimitRules:
        def key_of(limit_key: str | None, _: str | None) -> str:
            return limit_key or TASK

        return LimitRules(
            {
                TASK: TaskRule(max_running=self.limit, key_of=key_of),
                BOTH: TaskRule(max_running=self.limit, rate=RATE, key_of=key_of),
                METERED: TaskRule(rate=RATE),
                PLAIN: TaskRule(),
            }
        )

    @property
    def now(self) -> int:
        return self.clock.instant() or 0

    def enqueue(self, task: str, key: str) -> None:
        limit_key = f"{task}:{key}" if task in {TASK, BOTH} else None
        job = NewJob(id=new_id(), task_name=task, queue_name=QUEUE, payload="{}", limit_key=limit_key)
        self.store.run(jobs.enqueue(job))

    def claim(self, owner: str, slots: int) -> int:
        before = Counter(job.limit_key for job in self.running)
        claimed = self.store.run(claiming(self.rules, owner=owner, slots=slots)).jobs
        self.running += claimed
        self.starts += [self.now + job.starts_in_us for job in claimed if job.task_name in {METERED, BOTH}]
        for key in {job.limit_key for job in claimed if job.limit_key is not None}:
            running = sum(job.limit_key == key for job in self.running)
            assert running <= max(self.limit, before[key]), f"{running} of {key} run, {self.limit} may"
        return len(claimed)

    def finish(self, which: int, how: str) -> None:
        if not self.running:
            return
        job = self.running.pop(which % len(self.running))
        outcome = Released() if how == "released" else Completed()
        self.store.run(settling.settle([Settlement.of(job, outcome)]))
        if how == "told" and job.limit_key is not None:
            self.store.run(unblock_next([f"limit:{job.limit_key}"], self.rules))

    def upkeep(self) -> None:
        """What a worker's promoter does in one pass."""
        self.store.run(leases.promote_due())
        waits = self.store.run(own_blocked_names(self.rules))
        self.store.run(unblock_next(waits.names, self.rules))
        after: str | None = ""
        while after is not None:
            after = self.store.run(sweep(self.rules, after=after, most=2)).after

    def live(self) -> int:
        with self.store.transaction() as connection:
            return int(connection.execute("select count(*) from stagepost_job", {})[0][0])


@settings(
    max_examples=sized(test=150, proof=1000, night=10_000),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_limits_and_rates_are_never_exceeded_and_nobody_waits_for_ever(
    store: Store, steps: list[tuple[str, Any, Any]]
) -> None:
    store.clock = clock = ManualClock()
    with store.transaction() as connection:
        for table in tables_of(store.dialect):
            connection.execute(f"delete from {table}", {})
    world = World(store, clock)

    for name, first, second in steps:
        match name:
            case "enqueue" | "claim" | "finish":
                getattr(world, name)(first, second)
            case "limit":
                world.limit = first
            case "advance":
                clock.advance(first / 1_000_000)
            case _:
                store.run(block_front(QUEUE, world.rules))

    _drain(world)
    _check_rate(world.starts)
    assert [drift for part in PARTS for drift in store.run(find_drift(part))] == []


def _drain(world: World) -> None:
    """Every job ends within a number of passes that grows with the number of jobs only."""
    live = world.live()
    for _ in range(10 + 4 * live):
        world.upkeep()
        while world.claim("worker-a", 3):
            pass
        while world.running:
            world.finish(0, "lost")
        if not world.live():
            return
        world.clock.advance(0.25)
    raise AssertionError(f"{world.live()} jobs never started: {_waiting(world)}")


def _waiting(world: World) -> list[tuple[object, ...]]:
    with world.store.transaction() as connection:
        return connection.execute("select task_name, state, blocked_on from stagepost_job", {})


def _check_rate(starts: list[int]) -> None:
    starts = sorted(starts)
    for first, since in enumerate(starts):
        for number, until in enumerate(starts[first:], start=1):
            assert number <= Fraction(RATE.per_second) * (until - since) / 1_000_000 + RATE.burst
