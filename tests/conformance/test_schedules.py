"""A schedule fires once per due time, whoever fires it, and one that is broken stops no other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest

from stagepost.clock import SystemClock
from stagepost.database.statement import Statement
from stagepost.model.job import to_datetime
from stagepost.model.lifecycle import JobState
from stagepost.model.schedule import CatchUp
from stagepost.store import jobs
from stagepost.store.schedules import (
    Fired,
    fire_due,
    list_runs,
    list_schedules,
    put_schedule,
)
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.plans import analyze, plan_of
from tests.conformance.samples import new_job
from tests.conformance.schedules import HOUR, MINUTE, SECOND, declare, due_times_fired, job_ids, the


def test_a_due_schedule_enqueues_its_job_and_moves_on(store: Bench) -> None:
    declare(store, template=new_job(priority=3, max_attempts=9))
    due_at = the(store).next_due_at
    store.clock.advance(MINUTE + timedelta(seconds=5))

    fired = store.run(fire_due())

    [run] = fired.runs
    assert (run.schedule_name, run.due_at, run.fired_at) == ("report", due_at, store.now)
    assert (fired.errors, fired.is_more) == ({}, False)
    job = store.run(jobs.get(run.job_id))
    assert (job.state, job.priority, job.max_attempts, job.payload) == (JobState.QUEUED, 3, 9, new_job().payload)
    assert msgspec.json.decode(job.context or "") == {"trace": "4bf9", "schedule": "report", "due_at": due_at}
    assert (the(store).next_due_at, the(store).last_due_at) == (due_at + 60 * SECOND, due_at)
    assert store.run(list_runs("report")) == [run]


def test_nothing_fires_before_its_time_nor_twice(store: Bench) -> None:
    declare(store)
    store.clock.advance(MINUTE - timedelta(microseconds=1))
    assert store.run(fire_due()).runs == ()
    store.clock.advance(timedelta(microseconds=1))
    assert len(store.run(fire_due()).runs) == 1

    assert store.run(fire_due()).runs == ()
    assert len(job_ids(store)) == 1


@pytest.mark.parametrize(("catch_up", "fires"), [(CatchUp.ALL, 60), (CatchUp.LATEST, 1), (CatchUp.SKIP, 2)])
def test_due_times_missed_in_an_outage_fire_as_the_schedule_says(store: Bench, catch_up: CatchUp, fires: int) -> None:
    declare(store, catch_up=catch_up)
    store.clock.advance(HOUR)

    fired = store.run(fire_due())

    assert len(fired.runs) == fires  # `skip` counts what is at most a minute late as on time
    assert fired.runs[-1].due_at == store.now
    assert the(store).next_due_at == store.now + 60 * SECOND


def test_a_long_backlog_fires_in_parts_in_order(store: Bench) -> None:
    declare(store)
    first = the(store).next_due_at
    store.clock.advance(MINUTE * 25)

    rounds = [store.run(fire_due(most=10)) for _ in range(3)]

    assert [len(fired.runs) for fired in rounds] == [10, 10, 5]
    assert [fired.is_more for fired in rounds] == [True, True, False]
    assert [run.due_at for fired in rounds for run in fired.runs] == [first + n * 60 * SECOND for n in range(25)]


def test_a_round_is_bounded_over_all_schedules(store: Bench) -> None:
    for name in ("a", "b", "c"):
        declare(store, name)
    store.clock.advance(MINUTE * 4)

    rounds = [store.run(fire_due(most=5)) for _ in range(4)]

    assert [len(fired.runs) for fired in rounds] == [5, 5, 2, 0]
    assert [fired.is_more for fired in rounds] == [True, True, False, False]
    assert len(job_ids(store)) == 12


def test_the_longest_due_schedules_fire_first(store: Bench) -> None:
    declare(store, "slow", "every 3m")
    declare(store, "quick", "every 2m")
    store.clock.advance(HOUR)

    fired = store.run(fire_due(most=1))

    assert [run.schedule_name for run in fired.runs] == ["quick"]
    assert fired.is_more


def test_a_live_job_that_holds_the_unique_key_gets_the_due_times_instead_of_a_second_one(store: Bench) -> None:
    declare(store, template=new_job(unique_key="the report"))
    store.clock.advance(MINUTE)
    [first] = store.run(fire_due()).runs
    store.clock.advance(MINUTE * 2)

    later = store.run(fire_due()).runs

    assert [run.job_id for run in later] == [first.job_id] * 2
    assert job_ids(store) == [first.job_id]
    assert [run.job_id for run in store.run(list_runs("report"))] == [first.job_id] * 3


def test_a_due_time_that_is_recorded_never_fires_again(store: Bench) -> None:
    declare(store)
    due_at = the(store).next_due_at
    store.clock.advance(MINUTE)
    store.run(fire_due())

    store.rows("update stagepost_schedule set next_due_at = :due_at", due_at=due_at)  # as from an old backup

    assert store.run(fire_due()) == Fired((), {}, is_more=False)
    assert len(job_ids(store)) == 1
    assert the(store).next_due_at == due_at + 60 * SECOND


class Crash(Exception):
    """Stands for a scheduler that dies before its commit."""


def test_a_scheduler_that_dies_before_its_commit_leaves_the_due_times_to_the_next(blocking_store: Bench) -> None:
    declare(blocking_store)
    blocking_store.clock.advance(MINUTE * 3)
    own = blocking_store.database.store

    def fire_and_crash() -> None:
        with own.transaction() as connection:
            assert len(own.drive(fire_due(), connection).runs) == 3
            raise Crash

    with pytest.raises(Crash):
        fire_and_crash()
    assert job_ids(blocking_store) == []
    assert len(blocking_store.run(fire_due()).runs) == 3
    assert len(job_ids(blocking_store)) == 3


@pytest.mark.parametrize("name", ["postgres", "mariadb"])  # SQLite has one writer at a time: the others wait
def test_a_paused_scheduler_holds_up_no_other_and_doubles_nothing(
    database_on_bench: Callable[[str], DatabaseOnBench], name: str
) -> None:
    store = Bench(database_on_bench(name), Colour.SYNC)
    store.database.empty()
    declare(store, "a")
    declare(store, "b")
    store.clock.advance(MINUTE)
    own, [other] = store.database.store, store.database.racers(1)

    with own.transaction() as connection:
        mine = own.drive(fire_due(most=1), connection)
        # Paused here, with the schedule locked: another scheduler passes by and takes what is free.
        theirs = other.run(fire_due())

    assert due_times_fired(mine) == [("a", store.now)]
    assert due_times_fired(theirs) == [("b", store.now)]
    assert other.run(fire_due()).runs == ()


def test_a_broken_schedule_is_reported_and_stops_no_other(store: Bench) -> None:
    for name in ("bad rule", "bad template", "bad policy", "good"):
        declare(store, name)
    store.rows("update stagepost_schedule set rule = 'every blue moon' where name = 'bad rule'")
    store.rows("""update stagepost_schedule set template = '{"task_name"' where name = 'bad template'""")
    store.rows("update stagepost_schedule set catch_up = 'never' where name = 'bad policy'")
    store.clock.advance(MINUTE)

    fired = store.run(fire_due())

    assert due_times_fired(fired) == [("good", store.now)]
    assert set(fired.errors) == {"bad rule", "bad template", "bad policy"}
    assert "every blue moon" in fired.errors["bad rule"]
    assert the(store, "bad rule").error == fired.errors["bad rule"]


def test_broken_schedules_do_not_crowd_out_good_ones(store: Bench) -> None:
    for name in ("bad 1", "bad 2"):
        declare(store, name)
    declare(store, "good", "every 2m")
    store.rows("update stagepost_schedule set template = '' where name <> 'good'")
    store.clock.advance(MINUTE * 2)

    rounds = [store.run(fire_due(most=2)) for _ in range(2)]

    assert [sorted(fired.errors) for fired in rounds] == [["bad 1", "bad 2"], []]
    assert due_times_fired(rounds[1]) == [("good", store.now)]


def test_a_repaired_schedule_catches_up(store: Bench) -> None:
    declare(store)
    good = the(store).template
    store.rows("update stagepost_schedule set template = ''")
    store.clock.advance(MINUTE)
    store.run(fire_due())

    store.rows("update stagepost_schedule set template = :good", good=good)
    assert store.run(fire_due()).runs == ()
    store.clock.advance(MINUTE * 5)

    assert len(store.run(fire_due()).runs) == 6
    assert (the(store).error, the(store).held_until) == (None, None)


def test_declaring_a_broken_schedule_again_repairs_it_at_once(store: Bench) -> None:
    declare(store)
    store.rows("update stagepost_schedule set template = ''")
    store.clock.advance(MINUTE)
    store.run(fire_due())

    declare(store)

    assert the(store).error is None
    assert len(store.run(fire_due()).runs) == 1


@pytest.mark.parametrize("start", [datetime(2026, 3, 27, tzinfo=UTC), datetime(2026, 10, 23, tzinfo=UTC)])
def test_a_day_when_clocks_change_has_one_due_time_as_any_other(store: Bench, start: datetime) -> None:
    store.clock.advance(timedelta(microseconds=round(start.timestamp() * SECOND) - store.now))
    declare(store, rule="30 2 * * *", time_zone="Europe/Berlin")

    days = []
    for _ in range(4 * 8):
        store.clock.advance(timedelta(hours=3))
        days += [_local_day(run.due_at) for run in store.run(fire_due()).runs]

    assert days == [start.day + n for n in range(4)]


def _local_day(instant: int) -> int:
    return to_datetime(instant).astimezone(ZoneInfo("Europe/Berlin")).day


def test_racing_schedulers_fire_every_due_time_once(blocking_store: Bench) -> None:
    names = [f"schedule-{n}" for n in range(10)]
    for name in names:
        declare(blocking_store, name, "every 1s")
    start = blocking_store.now
    fired: list[tuple[str, int]] = []

    for _ in range(4):
        blocking_store.clock.advance(10)
        while True:
            rounds = blocking_store.race(*(fire_due(most=4) for _ in range(3)))
            fired += [due for one in rounds for due in due_times_fired(one)]
            if not any(one.is_more or one.runs for one in rounds):
                break

    expected = [(name, start + n * SECOND) for name in names for n in range(1, 41)]
    assert sorted(fired) == sorted(expected)
    runs = blocking_store.rows("select schedule_name, due_at, job_id from stagepost_schedule_run")
    assert sorted((name, due_at) for name, due_at, _ in runs) == sorted(expected)
    assert sorted(str(job_id) for _, _, job_id in runs) == sorted(job_ids(blocking_store))


def test_only_the_databases_clock_counts(blocking_store: Bench) -> None:
    own = blocking_store.database.store
    own.clock = SystemClock()
    [(before,)] = _databases_now(blocking_store)
    own.run(put_schedule("report", rule="every 1s", template=new_job(), catch_up=CatchUp.LATEST))
    [(after,)] = _databases_now(blocking_store)
    [schedule] = own.run(list_schedules())

    # Due since a second by the database's clock; what this process believes is never asked.
    blocking_store.rows("update stagepost_schedule set next_due_at = next_due_at - 1000000")
    fired = own.run(fire_due())

    assert before < schedule.next_due_at <= after + SECOND
    assert len(fired.runs) == 1
    assert fired.runs[0].due_at <= fired.runs[0].fired_at


def _databases_now(store: Bench) -> list[tuple[int]]:
    now = store.dialect.now
    return [(int(value),) for (value,) in store.rows(f"select {now}")]


def test_looking_for_due_schedules_does_not_read_those_that_are_not(blocking_store: Bench) -> None:
    template = new_job()
    with blocking_store.transaction() as connection:
        for number in range(300):
            operation = put_schedule(f"schedule-{number}", rule=f"every {number + 1}h", template=template)
            blocking_store.database.store.drive(operation, connection)
    analyze(blocking_store, "stagepost_schedule", "stagepost_schedule_run")

    statements = [
        Statement("lock_due_schedules", {"most": 10}),
        Statement("move_schedule", {"name": "schedule-7", "seen": 1, "next_due_at": 2, "last_due_at": 3}),
        Statement("list_runs", {"name": "schedule-7", "before": 9, "most": 5}),
    ]
    plans = {statement.name: plan_of(blocking_store, statement) for statement in statements}

    # `chosen` is no table: it holds the few that were found by the index.
    assert {name: plan.text for name, plan in plans.items() if plan.read_whole - {"chosen"}} == {}
