"""Due schedules take turns: one with a long backlog delays no other, and the work of a pass is bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from stagepost.database.async_store import AsyncStore
from stagepost.database.statement import Statements, operation
from stagepost.loops.signals import Signals
from stagepost.store.schedules import Fired, fire_due
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.scheduler import Scheduler
from tests.conformance.bench import Bench
from tests.conformance.schedules import MINUTE, SECOND, declare, due_times_fired, job_ids, the

MISSED = 43_210
PASS = 100


class LeadingScheduler(Scheduler):
    """One that leads however far the clock was moved."""

    def __init__(self, store: AsyncStore, leader: Leader) -> None:
        super().__init__(store, leader, Signals())
        self._lead = leader.run_once

    def fire(self) -> Fired:
        asyncio.run(self._lead())
        fired = asyncio.run(self.run_once())
        assert fired is not None
        return fired


@pytest.fixture
def scheduler(own_store: AsyncStore, leader: Leader) -> LeadingScheduler:
    return LeadingScheduler(own_store, leader)


def test_a_schedule_that_becomes_due_fires_in_the_next_pass_whatever_another_has_to_catch_up_on(
    blocking_store: Bench, scheduler: LeadingScheduler
) -> None:
    store = blocking_store
    declare(store, "backlog", "every 1m")
    store.clock.advance(MINUTE * MISSED)
    declare(store, "hourly", "every 1h")
    while the(store, "hourly").next_due_at > store.now:
        assert len(scheduler.fire().runs) == PASS
        store.clock.advance(MINUTE * 20)

    fired = scheduler.fire()

    assert Counter(run.schedule_name for run in fired.runs) == {"hourly": 1, "backlog": PASS - 1}
    assert fired.is_more
    assert scheduler.interval == 0.0
    assert the(store, "hourly").next_due_at > store.now


def test_a_backlog_is_caught_up_in_a_bounded_number_of_passes_each_due_time_once(
    blocking_store: Bench, scheduler: LeadingScheduler
) -> None:
    store = blocking_store
    declare(store, "backlog", "every 1s")
    declare(store, "minutely", "every 1m")
    start, missed = store.now, 1_210
    store.clock.advance(timedelta(seconds=missed))

    passes = []
    while (fired := scheduler.fire()).runs:
        assert len(fired.runs) <= PASS
        passes.append(fired)

    due = [one for fired in passes for one in due_times_fired(fired)]
    assert sorted(due) == sorted(
        [("backlog", start + n * SECOND) for n in range(1, missed + 1)]
        + [("minutely", start + n * 60 * SECOND) for n in range(1, missed // 60 + 1)]
    )
    assert len(passes) == -(-len(due) // PASS)
    assert [fired.is_more for fired in passes] == [True] * (len(passes) - 1) + [False]
    assert len(job_ids(store)) == len(due)


def test_many_schedules_with_backlogs_share_a_pass(store: Bench) -> None:
    names = [f"schedule-{number}" for number in range(4)]
    for name in names:
        declare(store, name)
    store.clock.advance(MINUTE * 1_000)

    fired = store.run(fire_due(most=20))

    assert Counter(run.schedule_name for run in fired.runs) == dict.fromkeys(names, 5)


def test_a_schedule_that_becomes_due_comes_before_more_backlogs_than_fit_into_a_pass(store: Bench) -> None:
    for number in range(7):
        declare(store, f"backlog-{number}")
    store.clock.advance(MINUTE * 1_000)
    declare(store, "new", "every 2m")
    for _ in range(3):
        store.run(fire_due(most=3))
        store.clock.advance(1)
    store.clock.advance(MINUTE * 2)

    fired = store.run(fire_due(most=3))

    assert "new" in {run.schedule_name for run in fired.runs}


def test_more_backlogs_than_fit_into_a_pass_take_turns(store: Bench) -> None:
    for number in range(5):
        declare(store, f"backlog-{number}")
    store.clock.advance(MINUTE * 1_000)

    served: Counter[str] = Counter()
    for _ in range(5):
        served.update(run.schedule_name for run in store.run(fire_due(most=2)).runs)
        store.clock.advance(1)

    assert served == {f"backlog-{number}": 2 for number in range(5)}


def test_the_statements_of_a_pass_do_not_grow_with_the_backlog(store: Bench) -> None:
    declare(store)
    store.clock.advance(MINUTE * MISSED)
    sent: list[str] = []

    @operation
    def noted() -> Statements[Fired]:
        steps = iter(fire_due())
        statement = next(steps)
        while True:
            sent.append(statement.name)
            try:
                statement = steps.send((yield statement))
            except StopIteration as end:
                fired: Fired = end.value
                return fired

    assert len(store.run(noted()).runs) == PASS

    assert len(sent) <= 10
    assert sent.count("move_schedule") == 1
