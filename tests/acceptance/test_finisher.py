"""The finisher when the store refuses its writes."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, JobState
from stagepost.database import sqlite
from stagepost.database.async_store import AsyncStore
from stagepost.database.statement import Operation
from stagepost.database.store import Store
from stagepost.errors import StoreUnavailable, ValueTooLarge
from stagepost.loops.signals import Signals
from stagepost.model.groups import GROUP_BYTES
from stagepost.model.identity import new_id
from stagepost.model.outcome import Completed
from stagepost.store.leases import claim
from stagepost.worker import finisher
from stagepost.worker.finisher import Finisher
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts


async def test_outcomes_behind_one_that_lost_its_lease_in_a_lock_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "LOCK_SECONDS", 0.01)
    monkeypatch.setattr(finisher, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(finisher, "MOST_AT_ONCE", 2)
    app = App(f"sqlite:///{tmp_path}/stagepost.db")
    task = app.task(name="task")(lambda: None)
    for _ in range(4):
        task.enqueue()
    lease = app.settings.lease_duration
    leased = app.store.run(claim("default", owner=new_id(), task_names=["task"], slots=4, lease=lease))
    attempts, known = [LeasedAttempt(job, float("inf")) for job in leased], LeasedAttempts()
    known.add(attempts)
    writer = Finisher(AsyncStore(app.store), known, Signals())
    for attempt in attempts:
        writer.put(attempt, Completed())
    attempts[0].is_lost = True

    other = sqlite3.connect(tmp_path / "stagepost.db", isolation_level=None)
    other.execute("begin immediate")
    await writer.run_once()
    other.execute("rollback")
    while writer.pending:
        await writer.run_once()

    assert [app.client.job(attempt.job.id).state for attempt in attempts[1:]] == [JobState.COMPLETED] * 3
    assert (writer.settled, writer.lost, len(known)) == (3, 1, 0)
    other.close()
    app.close()


class Refusing(AsyncStore):
    """A store that cannot settle some attempts, nor any group they are in; `error` says how."""

    def __init__(self, store: Store, error: Exception) -> None:
        super().__init__(store)
        self.refused: set[str] = set()
        self.error = error
        self.groups: list[int] = []

    async def run(self, operation: Operation[Any], *, patience_seconds: float | None = None) -> Any:
        if operation.name == "settle":
            [changes] = operation.arguments
            self.groups.append(len(changes))
            if self.refused & {change.id for change in changes if change.state is JobState.COMPLETED}:
                raise self.error
        return await super().run(operation, patience_seconds=patience_seconds)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/stagepost.db")
    yield app
    app.close()


def ended(app: App, store: AsyncStore, number: int) -> tuple[Finisher, list[LeasedAttempt]]:
    """Run so many attempts that completed and are not written yet."""
    task = app.task(name="task")(lambda: None)
    for _ in range(number):
        task.enqueue()
    lease = app.settings.lease_duration
    leased = app.store.run(claim("default", owner=new_id(), task_names=["task"], slots=number, lease=lease))
    attempts, known = [LeasedAttempt(job, float("inf")) for job in leased], LeasedAttempts()
    known.add(attempts)
    writer = Finisher(store, known, Signals())
    for attempt in attempts:
        writer.put(attempt, Completed())
    return writer, attempts


async def test_a_group_that_fails_is_halved_and_the_one_at_fault_fails_alone(app: App) -> None:
    store = Refusing(app.store, ValueTooLarge(2_000_000, 1_000_000))
    writer, attempts = ended(app, store, 64)
    store.refused = {attempts[20].job.id}

    await writer.run_once()

    states = [app.client.job(attempt.job.id).state for attempt in attempts]
    assert states == [JobState.FAILED if place == 20 else JobState.COMPLETED for place in range(64)]
    assert "the server takes 1,000,000" in (app.client.job(attempts[20].job.id).error or "")
    assert writer.pending == 0
    assert store.groups[:3] == [64, 32, 16]
    assert len(store.groups) < 20  # not one by one


async def test_a_group_lost_with_its_connection_is_repeated_in_parts(app: App) -> None:
    lost = StoreUnavailable("gone")
    lost.__cause__ = ConnectionResetError()
    store = Refusing(app.store, lost)
    writer, attempts = ended(app, store, 64)
    store.refused = {attempts[0].job.id}

    for _ in range(30):
        with contextlib.suppress(StoreUnavailable):
            await writer.run_once()

    assert store.groups[:8] == [64, 32, 16, 8, 4, 2, 1, 1]
    assert {app.client.job(attempt.job.id).state for attempt in attempts[1:]} == {JobState.COMPLETED}
    assert writer.pending == 1

    store.refused = set()
    while writer.pending:
        await writer.run_once()
    assert app.client.job(attempts[0].job.id).state is JobState.COMPLETED


async def test_groups_are_bounded_in_bytes(app: App) -> None:
    store = Refusing(app.store, ValueError())
    writer, attempts = ended(app, store, 0)
    assert attempts == []
    jobs = [app.task(name=f"task-{number}")(lambda: None).enqueue() for number in range(6)]
    names = [f"task-{number}" for number in range(6)]
    leased = app.store.run(
        claim("default", owner=new_id(), task_names=names, slots=6, lease=app.settings.lease_duration)
    )
    for job in leased:
        writer.put(LeasedAttempt(job, float("inf")), Completed('"' + "x" * (GROUP_BYTES // 2 - 1000) + '"'))
    assert writer.pending_bytes > 2 * GROUP_BYTES

    while writer.pending:
        await writer.run_once()

    assert store.groups == [2, 2, 2]
    assert writer.pending_bytes == 0
    assert {app.client.job(job.id).state for job in jobs} == {JobState.COMPLETED}
