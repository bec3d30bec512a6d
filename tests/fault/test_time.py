"""F43 to F45: clocks that are wrong or jump, schedulers that oversleep, and two years of calendars."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest

from stagepost.database import Store
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.model.schedule import CatchUp
from stagepost.store.schedules import fire_due, put_schedule
from stagepost.testing.clock import ManualClock
from tests.fault.arena import STEADY_LEASE, Arena, jobs_of
from tests.fault.backends import SERVERS, Backend
from tests.fault.nursery import ROOT, WorkerProcess
from tests.fault.worker_main import QUEUES
from tests.services.fixtures import demand
from tests.services.locate import FAKETIME

HOUR = 3600
YEARS = 2
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
    "Africa/Casablanca",
)


@pytest.fixture(scope="module")
def faketime(pytestconfig: pytest.Config) -> str:
    """The library that tells processes a wrong time."""
    return demand(FAKETIME, pytestconfig)


class SkewedWorker:
    """A worker whose clock is off by as many seconds as its file says."""

    def __init__(self, arena: Arena, library: str, name: str, seconds: int) -> None:
        """It serves a queue with its own name, and the queue for all workers."""
        self._file = arena.folder / f"clock-{name}"
        self.set_clock(seconds)
        variables = arena.environment(lease_seconds=STEADY_LEASE) | {
            QUEUES: f"default,{name}",
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",  # seconds; without, it reads the file again for every look at the clock
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])),
        }
        self.log = arena.folder / f"log-{name}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fault.worker_main"],
                env={**os.environ, **variables},
                cwd=ROOT,
                stderr=log,
            )

    def set_clock(self, seconds: int) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._file)  # at once: the worker may be reading it


@contextlib.contextmanager
def skewed_worker(arena: Arena, library: str, name: str, seconds: int) -> Iterator[SkewedWorker]:
    worker = SkewedWorker(arena, library, name, seconds)
    try:
        yield worker
    finally:
        worker.process.kill()
        worker.process.wait()


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
@pytest.mark.prove
def test_workers_whose_clocks_are_wrong_and_jump_keep_leases_and_delays(arena: Arena, faketime: str) -> None:
    """F43."""
    gate = arena.folder / "gate"
    # On the loop: where the clock is wrong, `time.sleep` in a thread is refused.
    slow = [arena.enqueue("note_at_gate_async", queue=name, gate=str(gate))[0] for name in ("ahead", "behind")]
    quick = arena.enqueue("transfer", 30) + arena.enqueue("note", 30)
    flaky = arena.enqueue("transfer_flaky", 10)
    delayed = arena.submit([msgspec.structs.replace(job, delay_us=700_000) for job in jobs_of("transfer", 10)])

    with (
        skewed_worker(arena, faketime, "ahead", HOUR) as ahead,
        skewed_worker(arena, faketime, "behind", -HOUR),
    ):
        arena.wait(lambda: len(arena.notes("start", slow)) == len(slow), "both to work")
        assert all(abs(arena.lease_left(job_id)) < HOUR / 2 for job_id in slow), "leases by the wrong clock"
        arena.wait(lambda: len(arena.notes("start")) > 10, "work to begin")
        arena.wait_for_renewal(slow)
        ahead.set_clock(-HOUR)
        for _ in range(2):
            arena.wait_for_renewal(slow)
        assert all(abs(arena.lease_left(job_id)) < HOUR / 2 for job_id in slow), "leases by the wrong clock"
        gate.touch()
        arena.wait_for_end()
        late = datetime.fromisoformat(ahead.log.read_text().splitlines()[0].partition(",")[0])

    evidence = arena.verify()
    assert abs(late - datetime.now()) > timedelta(minutes=50), "the clock was not wrong"  # noqa: DTZ005
    assert {(evidence.jobs[job].attempt, evidence.jobs[job].error) for job in slow + quick + delayed} == {(1, None)}
    assert {evidence.jobs[job].attempt for job in flaky} == {2}
    early = arena.backend.rows("select id from stagepost_job_history where started_at < available_at")
    assert early == []


def test_a_schedule_fires_once_per_due_time_even_if_its_leaders_oversleep(arena: Arena) -> None:
    """F44."""
    template = NewJob(id=new_id(), task_name="note", payload="{}")
    arena.operate(put_schedule("tick", rule="every 1s", template=template, catch_up=CatchUp.ALL))
    workers = [arena.start_worker() for _ in range(3)]

    for _ in range(3):
        overslept = leading(arena, workers)
        overslept.pause()
        if arena.backend.name != "sqlite":  # where it may stand still with the only lock
            arena.wait(partial(is_replaced, arena, workers, overslept), "another leader")
        overslept.resume()
    arena.wait(lambda: len(due_times(arena)) >= 4, "four firings")
    arena.stop_workers()

    times = due_times(arena)
    assert {after - before for before, after in pairwise(times)} == {1_000_000}
    [(jobs,)] = arena.backend.rows(
        "select count(*) from (select id from stagepost_job union all select id from stagepost_job_history) as jobs"
    )
    assert jobs == len(times)


def is_replaced(arena: Arena, workers: list[WorkerProcess], leader: WorkerProcess) -> bool:
    return leading(arena, workers) is not leader


def leading(arena: Arena, workers: list[WorkerProcess]) -> WorkerProcess:
    """The worker that has the lead, once one has."""

    def find() -> list[WorkerProcess]:
        rows = arena.backend.rows("select owner from stagepost_leader where expires_at > :now")
        return [worker for worker in workers for (owner,) in rows if owner in worker.logged()]

    found: list[WorkerProcess] = []

    def is_found() -> bool:
        found[:] = find()
        return bool(found)

    arena.wait(is_found, "a leader")
    return found[0]


def due_times(arena: Arena) -> list[int]:
    return [due for (due,) in arena.backend.rows("select due_at from stagepost_schedule_run order by due_at")]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_two_years_of_calendars_in_eight_zones_fire_every_day_once(backend: Backend) -> None:
    """F45: nights of 23 and 25 hours, a leap day, and zones that change their rules; looked at irregularly."""
    clock, chooser = ManualClock(datetime(2027, 1, 1, tzinfo=UTC)), random.Random(45)  # noqa: S311 - repeatable
    template = NewJob(id=new_id(), task_name="t", payload="{}")
    with contextlib.closing(Store.at(backend.url, clock=clock)) as store:
        for zone in ZONES:
            daily = put_schedule(zone, rule="30 2 * * *", template=template, time_zone=zone, catch_up=CatchUp.ALL)
            store.run(daily)
        leap = put_schedule("leap", rule="0 12 29 2 *", template=template, catch_up=CatchUp.ALL)
        store.run(leap)
        for _ in range(YEARS * 365):
            clock.advance(timedelta(hours=chooser.choice([1, 12, 24, 30, 53])))
            while store.run(fire_due()).is_more:
                continue
        end = clock.instant()

    assert end is not None
    for zone in ZONES:
        days = Counter(local_days(backend, zone))
        assert set(days.values()) == {1}, f"{zone}: {[day for day, times in days.items() if times > 1]}"
        expected = (max(days) - min(days)).days + 1
        assert len(days) == expected, f"{zone}: {expected - len(days)} days without a firing"
    assert [
        due for (due,) in backend.rows("select due_at from stagepost_schedule_run where schedule_name = 'leap'")
    ] == [int(datetime(2028, 2, 29, 12, tzinfo=UTC).timestamp()) * 1_000_000]


def local_days(backend: Backend, zone: str) -> list[date]:
    rows = backend.rows("select due_at from stagepost_schedule_run where schedule_name = :name", name=zone)
    return [datetime.fromtimestamp(due / 1_000_000, ZoneInfo(zone)).date() for (due,) in rows]
