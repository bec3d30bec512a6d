"""Schedules are declared by code; operators pause, run, list and remove them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stagepost.errors import ConfigurationError, ScheduleNotFound
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import JobState
from stagepost.model.schedule import CatchUp
from stagepost.store import jobs
from stagepost.store.history import prune
from stagepost.store.schedules import (
    Schedule,
    fire_due,
    list_runs,
    list_schedules,
    next_schedule_due,
    pause_schedule,
    put_schedule,
    remove_schedules_not_in,
    resume_schedule,
    run_now,
)
from tests.conformance.bench import Bench
from tests.conformance.samples import new_job
from tests.conformance.schedules import HOUR, MINUTE, SECOND, declare, due_times_fired, job_ids, the


def test_a_declared_schedule_is_stored_with_its_next_due_time(store: Bench) -> None:
    template = new_job(limit_key="one at a time", limit=3)

    store.run(
        put_schedule("report", rule="30 2 * * *", template=template, time_zone="Europe/Berlin", catch_up=CatchUp.SKIP)
    )

    schedule = the(store)
    assert msgspec.json.decode(schedule.template, type=NewJob) == msgspec.structs.replace(template, id="")
    assert msgspec.structs.replace(schedule, template="") == Schedule(
        name="report",
        task_name="send_letter",
        rule="30 2 * * *",
        time_zone="Europe/Berlin",
        catch_up="skip",
        template="",
        next_due_at=store.now + 90 * 60 * SECOND,  # the bench's clock starts at midnight UTC, in winter
        last_due_at=None,
        orphaned_at=None,
        paused_at=None,
        held_until=None,
        error=None,
    )


def test_declaring_again_with_the_same_rule_keeps_the_next_due_time(store: Bench) -> None:
    declare(store)
    due = the(store).next_due_at
    store.clock.advance(HOUR)

    declare(store, template=new_job(task_name="print"), catch_up=CatchUp.LATEST)

    schedule = the(store)
    assert (schedule.next_due_at, schedule.task_name, schedule.catch_up) == (due, "print", "latest")


def test_declaring_what_is_stored_already_writes_nothing(store: Bench) -> None:
    declare(store)
    [(before,)] = store.rows("select updated_at from stagepost_schedule")
    store.clock.advance(HOUR)

    declare(store)

    assert store.rows("select updated_at from stagepost_schedule") == [(before,)]


@pytest.mark.parametrize("change", [{"rule": "every 30s"}, {"time_zone": "Asia/Tokyo"}])
def test_a_changed_rule_counts_from_now(store: Bench, change: dict[str, str]) -> None:
    declare(store)
    store.clock.advance(HOUR)

    declare(store, **change)

    assert store.now < the(store).next_due_at <= store.now + 60 * SECOND


@pytest.mark.parametrize(
    "wrong",
    [
        {"rule": "every now and then"},
        {"time_zone": "Europe/Atlantis"},
        {"name": "n" * 192},
        {"rule": "0 0 1 1 " + ",".join(["MON"] * 60)},
        {"template": new_job(priority=40_000)},
        {"template": new_job(payload="{")},
        {"template": new_job(context="[]")},
        {"template": new_job(unique_key="k" * 192)},
    ],
)
def test_a_schedule_that_could_not_fire_is_refused(store: Bench, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        declare(store, **wrong)

    assert store.run(list_schedules()) == []


def test_racing_declarations_store_one_schedule(blocking_store: Bench) -> None:
    template = new_job()
    blocking_store.race(
        *(put_schedule("report", rule="every 1m", template=template, catch_up=CatchUp.ALL) for _ in range(6))
    )

    assert len(blocking_store.run(list_schedules())) == 1


def test_a_paused_schedule_fires_nothing_and_skips_what_was_due_meanwhile(store: Bench) -> None:
    declare(store)

    store.run(pause_schedule("report", actor="olga"))
    store.clock.advance(HOUR)
    assert store.run(fire_due()).runs == ()
    store.run(resume_schedule("report", actor="piet"))

    assert store.run(fire_due()).runs == ()
    assert the(store).next_due_at == store.now + 60 * SECOND
    assert store.rows("select actor, action, subject from stagepost_audit order by id") == [
        ("olga", "pause_schedule", "report"),
        ("piet", "resume_schedule", "report"),
    ]


def test_resuming_a_schedule_that_is_not_paused_skips_nothing(store: Bench) -> None:
    declare(store)
    store.clock.advance(MINUTE)

    store.run(resume_schedule("report", actor="piet"))

    assert len(store.run(fire_due()).runs) == 1


def test_running_a_schedule_now_is_recorded_and_changes_no_due_time(store: Bench) -> None:
    declare(store)
    due_at = the(store).next_due_at
    store.clock.advance(MINUTE)  # even at the very instant of a due time

    enqueued = store.run(run_now("report", actor="olga"))

    assert store.run(jobs.get(enqueued.id)).state is JobState.QUEUED
    assert store.rows("select actor, action, subject, detail from stagepost_audit") == [
        ("olga", "run_schedule", "report", enqueued.id)
    ]
    assert due_times_fired(store.run(fire_due())) == [("report", due_at)]
    assert len(job_ids(store)) == 2


@pytest.mark.parametrize("act", [pause_schedule, resume_schedule, run_now])
def test_a_schedule_that_does_not_exist_is_an_error(store: Bench, act: Any) -> None:
    with pytest.raises(ScheduleNotFound, match="'nightly'"):
        store.run(act("nightly", actor="olga"))

    assert store.rows("select id from stagepost_audit") == []


def test_schedules_that_code_no_longer_declares_can_be_removed(store: Bench) -> None:
    for name in ("a", "b", "c"):
        declare(store, name)

    assert store.run(remove_schedules_not_in({"b"}, actor="deploy")) == ["a", "c"]
    assert [schedule.name for schedule in store.run(list_schedules())] == ["b"]


def test_the_time_until_the_next_due_schedule_leaves_out_paused_and_broken_ones(store: Bench) -> None:
    assert store.run(next_schedule_due()) is None
    declare(store, "paused", "every 10s")
    store.run(pause_schedule("paused", actor="olga"))
    declare(store, "broken", "every 20s")
    store.rows("update stagepost_schedule set template = '' where name = 'broken'")
    declare(store)
    store.clock.advance(20)
    store.run(fire_due())

    assert store.run(next_schedule_due()) == timedelta(seconds=40)


def test_runs_are_listed_newest_first_and_pruned_when_old(store: Bench) -> None:
    declare(store)
    store.clock.advance(MINUTE * 3)
    store.run(fire_due())

    runs = store.run(list_runs("report", most=2))

    assert [run.due_at for run in runs] == [store.now, store.now - 60 * SECOND]
    assert len(store.run(list_runs("report", before=runs[-1].due_at))) == 1
    store.clock.advance(HOUR)
    assert store.run(prune(MINUTE, states=[])) == 3
    assert store.run(list_runs("report")) == []
