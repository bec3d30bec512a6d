"""Jobs that crashed twice run one at a time, and only the one that has started is charged with the next crash."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from stagepost import App, JobState, Worker
from stagepost.client.handle import JobHandle
from stagepost.client.records import Job
from stagepost.database import sqlite
from stagepost.database.async_store import AsyncStore
from stagepost.errors import StoreUnavailable
from stagepost.loops.signals import Signals
from stagepost.model.identity import new_id
from stagepost.model.outcome import Completed
from stagepost.store.leases import claim, rescue_expired
from stagepost.worker import crash_isolation
from stagepost.worker.crash_isolation import CrashIsolation
from stagepost.worker.finisher import Finisher
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from tests.acceptance.helpers import LIMIT, work_async

HOUR = 3600.0


def accuse(app: App) -> None:
    """Let all jobs have crashed twice."""
    with app.transaction() as tx:
        cursor = tx.cursor()
        cursor.execute("update stagepost_job set crashes = 2")
        cursor.close()


def stored(app: App, jobs: list[JobHandle[None]]) -> list[Job]:
    return [app.client.job(job.id) for job in jobs]


def states(app: App, jobs: list[JobHandle[None]]) -> list[tuple[JobState, int]]:
    return [(job.state, job.crashes) for job in stored(app, jobs)]


async def test_suspects_run_one_after_the_other_beside_other_jobs(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_isolation, "TURN_SECONDS", HOUR)
    running: list[int] = []
    seen: list[list[int]] = []
    others_ran = asyncio.Event()

    @app.task
    async def suspect(number: int) -> None:
        running.append(number)
        seen.append(list(running))
        await others_ran.wait()
        running.remove(number)

    @app.task(priority=-1)
    async def other() -> None:
        others_ran.set()

    jobs = [suspect.enqueue(number) for number in range(3)]
    accuse(app)
    other.enqueue()
    await work_async(app, concurrency=4)

    assert seen == [[0], [1], [2]]
    assert [(job.state, job.crashes, job.attempt) for job in stored(app, jobs)] == [(JobState.COMPLETED, 2, 1)] * 3


async def test_a_long_running_suspect_does_not_hold_up_the_others(app: App) -> None:
    """They are put back for other workers, and jobs that are not suspects use their slots."""
    started, may_end, others_ran, have_all_ended = (asyncio.Event() for _ in range(4))
    ended: list[int] = []

    @app.task
    async def suspect(number: int) -> None:
        started.set()
        await may_end.wait()
        ended.append(number)
        if len(ended) == 4:
            have_all_ended.set()

    @app.task(priority=-1)
    async def other() -> None:
        others_ran.set()

    jobs = [suspect.enqueue(number) for number in range(4)]
    accuse(app)
    worker = Worker(app, concurrency=4)
    async with asyncio.timeout(LIMIT):
        task = asyncio.create_task(worker.run())
        await started.wait()
        other.enqueue()
        await others_ran.wait()
        may_end.set()
        await have_all_ended.wait()
        worker.stop()
        await task

    assert states(app, jobs) == [(JobState.COMPLETED, 2)] * 4
    assert [job.attempt > 1 for job in stored(app, jobs)] == [False, True, True, True]


async def test_a_worker_that_stops_releases_suspects_that_wait_in_line(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_isolation, "TURN_SECONDS", HOUR)

    @app.task
    async def suspect() -> None:
        worker.stop()

    jobs = [suspect.enqueue() for _ in range(3)]
    accuse(app)
    worker = Worker(app, concurrency=4)
    async with asyncio.timeout(LIMIT):
        await worker.run()

    assert states(app, jobs) == [(JobState.COMPLETED, 2), (JobState.QUEUED, 2), (JobState.QUEUED, 2)]


async def test_no_suspect_in_line_starts_while_a_stopping_worker_waits_for_a_claim(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_isolation, "TURN_SECONDS", HOUR)
    is_claiming, may_claim, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def claim_slowly() -> int:
        is_claiming.set()
        await may_claim.wait()
        return 0

    @app.task
    async def suspect() -> None:
        monkeypatch.setattr(worker.parts.claimer, "run_once", claim_slowly)
        worker.parts.claimer.wake()
        await is_claiming.wait()
        worker.stop()

    jobs = [suspect.enqueue() for _ in range(2)]
    accuse(app)
    worker = Worker(app, concurrency=4)
    worker.parts.attempts.removed.connect(lambda _attempts: has_ended.set())
    async with asyncio.timeout(LIMIT):
        task = asyncio.create_task(worker.run())
        await has_ended.wait()
        begun = await worker.parts.crash_isolation.run_once()
        may_claim.set()
        await task

    assert begun == 0
    assert states(app, jobs) == [(JobState.COMPLETED, 2), (JobState.QUEUED, 2)]


class Line:
    """Suspects that may run one at a time, without a worker."""

    def __init__(self, folder: Path, number: int) -> None:
        self.path = folder / "stagepost.db"
        self.app = App(f"sqlite:///{self.path}")
        task = self.app.task(name="task")(lambda: None)
        self.jobs = [task.enqueue() for _ in range(number)]
        accuse(self.app)
        self.started: list[LeasedAttempt] = []
        self.known = LeasedAttempts()
        self.finisher = Finisher(AsyncStore(self.app.store), self.known, Signals())
        self.crash_isolation = CrashIsolation(
            AsyncStore(self.app.store), self.known, self.finisher, start=self.started.extend, clock=self.app.clock
        )
        self.known.removed.connect(self.crash_isolation.note_removed)
        leased = self.app.store.run(
            claim("default", owner=new_id(), task_names=["task"], slots=number, lease=timedelta(seconds=0))
        )
        self.attempts = [LeasedAttempt(job, float("inf")) for job in leased]
        self.known.add(self.attempts)
        self.crash_isolation.start(self.attempts)

    async def end_turn(self) -> None:
        """Complete the one that runs."""
        self.finisher.put(self.started[-1], Completed())
        await self.finisher.run_once()

    def rescue(self) -> None:
        """What others do when the worker is gone."""
        self.app.store.run(rescue_expired(grace=timedelta(seconds=-1)))

    def states(self) -> list[tuple[JobState, int]]:
        return states(self.app, self.jobs)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path, 3)
    yield line
    line.app.close()


QUEUED, PARKED = (JobState.QUEUED, 2), (JobState.DEAD_LETTER, 3)


async def test_a_suspect_in_line_is_not_charged_with_the_death_of_its_worker(line: Line) -> None:
    await line.crash_isolation.run_once()
    line.rescue()

    assert line.started == line.attempts[:1]
    assert line.states() == [PARKED, QUEUED, QUEUED]


async def test_a_suspect_that_has_left_the_line_is_charged(line: Line) -> None:
    await line.crash_isolation.run_once()
    await line.end_turn()
    await line.crash_isolation.run_once()
    line.rescue()

    assert line.started == line.attempts[:2]
    assert line.states() == [(JobState.COMPLETED, 2), PARKED, QUEUED]


async def test_a_suspect_starts_only_after_the_previous_ones_outcome_is_written(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anybody put back for that: it does not take long."""
    monkeypatch.setattr(crash_isolation, "TURN_SECONDS", 0)
    await line.crash_isolation.run_once()
    line.finisher.put(line.started[0], Completed())
    await line.crash_isolation.run_once()
    assert line.started == line.attempts[:1]
    assert line.finisher.pending == 1

    await line.finisher.run_once()
    await line.crash_isolation.run_once()
    assert line.started == line.attempts[:2]


async def test_a_suspect_that_loses_its_lease_in_line_is_dropped(line: Line) -> None:
    await line.crash_isolation.run_once()
    line.attempts[1].is_lost = True
    await line.end_turn()
    await line.crash_isolation.run_once()

    assert line.started == [line.attempts[0], line.attempts[2]]
    assert line.finisher.pending == 1


async def test_a_line_keeps_its_order_while_the_store_is_away(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "LOCK_SECONDS", 0.01)
    other = sqlite3.connect(line.path, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailable):
        await line.crash_isolation.run_once()
    other.execute("rollback")
    other.close()
    assert line.started == []

    await line.crash_isolation.run_once()
    assert line.started == line.attempts[:1]


async def test_a_suspect_released_while_its_turn_is_being_recorded_does_not_start(line: Line) -> None:
    await line.crash_isolation.run_once()
    await line.end_turn()
    turn = asyncio.create_task(line.crash_isolation.run_once())
    await asyncio.sleep(0)  # it has asked the store, which answers in a thread
    line.crash_isolation.give_back()
    await turn

    assert line.started == line.attempts[:1]
    while line.finisher.pending:
        await line.finisher.run_once()
    assert line.states() == [(JobState.COMPLETED, 2), QUEUED, QUEUED]
