"""A schedule fires only while the code of some running worker declares it, in whatever order versions are deployed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from stagepost.database.async_store import AsyncStore
from stagepost.loops.signals import Signals
from stagepost.model.schedule import CatchUp
from stagepost.store.schedules import (
    UNDECLARED,
    fire_due,
    list_schedules,
    next_schedule_due,
    orphan_schedules,
    pause_schedule,
    remove_schedule,
    renew_declarations,
    resume_schedule,
    undeclared_schedules,
)
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.schedule_declarer import ScheduleDeclarer
from tests.conformance.bench import Bench
from tests.conformance.schedules import MINUTE, declare, due_times_fired, the

LATER = UNDECLARED + timedelta(seconds=1)


def orphan(store: Bench, name: str = "report") -> None:
    store.clock.advance(LATER)
    assert store.run(orphan_schedules([name])) == [name]


def test_a_schedule_that_no_worker_declares_stops_firing(store: Bench) -> None:
    declare(store)
    declare(store, "kept")
    store.clock.advance(LATER)
    store.run(renew_declarations(["kept"]))

    assert store.run(undeclared_schedules()) == ["report"]
    assert store.run(orphan_schedules(["report", "kept", "none"])) == ["report"]

    assert store.run(undeclared_schedules()) == []
    assert (the(store).orphaned_at, the(store, "kept").orphaned_at) == (store.now, None)
    assert {name for name, _ in due_times_fired(store.run(fire_due()))} == {"kept"}
    assert the(store).next_due_at < store.now


def test_an_orphaned_schedule_is_not_waited_for(store: Bench) -> None:
    declare(store)
    orphan(store)

    assert store.run(next_schedule_due()) is None


def test_a_schedule_that_was_declared_meanwhile_is_not_orphaned(store: Bench) -> None:
    declare(store)
    store.clock.advance(LATER)
    store.run(renew_declarations(["report"]))

    assert store.run(orphan_schedules(["report"])) == []


@pytest.mark.parametrize("how", ["starts", "goes on"])
@pytest.mark.parametrize(("catch_up", "fires"), [(CatchUp.ALL, 15), (CatchUp.LATEST, 1)])
def test_a_worker_that_declares_it_again_catches_up_on_what_was_due(
    store: Bench, how: str, catch_up: CatchUp, fires: int
) -> None:
    declare(store, catch_up=catch_up)
    orphan(store)
    store.clock.advance(MINUTE * 10)
    assert store.run(fire_due()).runs == ()

    if how == "starts":
        declare(store, catch_up=catch_up)
    else:
        assert store.run(renew_declarations(["report"])) == ["report"]

    assert the(store).orphaned_at is None
    assert len(store.run(fire_due()).runs) == fires


def test_a_recent_declaration_is_not_written_again(store: Bench) -> None:
    declare(store)
    store.clock.advance(20)
    assert store.run(renew_declarations(["report", "none"])) == []
    store.clock.advance(20)
    assert store.run(renew_declarations(["report", "none"])) == ["report"]


def test_a_schedule_that_was_removed_by_hand_is_not_brought_back_by_workers_that_run(store: Bench) -> None:
    declare(store)
    store.run(remove_schedule("report", actor="ada"))
    store.clock.advance(LATER)

    assert store.run(renew_declarations(["report"])) == []
    assert store.run(list_schedules()) == []


def test_an_orphaned_schedule_that_is_resumed_fires_without_code(store: Bench) -> None:
    declare(store)
    orphan(store)

    store.run(resume_schedule("report", actor="ada"))
    store.clock.advance(MINUTE)

    assert len(store.run(fire_due()).runs) == 1
    store.clock.advance(LATER)
    assert store.run(undeclared_schedules()) == []

    store.run(renew_declarations(["report"]))  # its code is back, and then gone for good
    store.clock.advance(LATER)
    assert store.run(undeclared_schedules()) == ["report"]


def test_a_paused_schedule_stays_paused_when_it_is_declared_again(store: Bench) -> None:
    declare(store)
    store.run(pause_schedule("report", actor="ada"))
    orphan(store)

    store.run(renew_declarations(["report"]))

    assert the(store).paused_at is not None
    assert store.run(fire_due()).runs == ()
    store.run(resume_schedule("report", actor="ada"))
    store.clock.advance(LATER)
    assert store.run(undeclared_schedules()) == ["report"], "resuming what is not orphaned is no reason to keep it"


@pytest.fixture
def worker(own_store: AsyncStore, leader: Leader, blocking_store: Bench) -> Callable[..., Callable[[], list[str]]]:
    """Makes a worker whose code declares these schedules; returns what does one pass, a minute after the last."""

    def make(*names: str, leads: bool = False) -> Callable[[], list[str]]:
        for name in names:
            declare(blocking_store, name)
        other = Leader(own_store, Signals(), owner="worker-b", clock=blocking_store.clock)
        declarer = ScheduleDeclarer(own_store, leader if leads else other, dict.fromkeys(names))

        def run() -> list[str]:
            if leads:
                asyncio.run(leader.run_once())
            return asyncio.run(declarer.run_once())

        return run

    return make


def minutes(store: Bench, number: int, *workers: Callable[[], list[str]]) -> list[str]:
    """Let workers run side by side; returns what was stopped."""
    stopped = []
    for _ in range(number):
        store.clock.advance(MINUTE)
        for worker in workers:
            stopped += worker()
    return stopped


def test_a_schedule_goes_on_while_old_code_runs_beside_new(
    blocking_store: Bench, worker: Callable[..., Callable[[], list[str]]], caplog: pytest.LogCaptureFixture
) -> None:
    store = blocking_store
    old = worker("gone", "kept")
    new = worker("kept", leads=True)

    with caplog.at_level(logging.WARNING):
        assert minutes(store, 20, new, old) == []
        assert minutes(store, 10, new) == ["gone"]
        assert minutes(store, 20, new) == []

    [message] = caplog.messages
    assert message.startswith("schedule 'gone' is stopped: no running worker declares it.")
    assert "stagepost schedules remove" in message
    assert the(store, "kept").orphaned_at is None


def test_old_code_that_starts_after_new_brings_its_schedule_back_while_it_runs(
    blocking_store: Bench, worker: Callable[..., Callable[[], list[str]]]
) -> None:
    store = blocking_store
    worker("gone")
    new = worker("kept", leads=True)
    assert minutes(store, 10, new) == ["gone"]

    late = worker("gone", "kept")

    assert the(store, "gone").orphaned_at is None
    assert minutes(store, 20, new, late) == []
    assert minutes(store, 10, new) == ["gone"]


def test_a_leader_that_slept_stops_nothing_of_workers_that_slept_as_well(
    blocking_store: Bench, worker: Callable[..., Callable[[], list[str]]]
) -> None:
    store = blocking_store
    new = worker("kept", leads=True)
    other = worker("theirs")
    minutes(store, 2, new, other)
    store.clock.advance(timedelta(hours=9))

    assert minutes(store, 5, new, other) == []


def test_only_the_leader_stops_schedules(blocking_store: Bench, worker: Callable[..., Callable[[], list[str]]]) -> None:
    worker("gone")

    assert minutes(blocking_store, 20, worker("kept")) == []
