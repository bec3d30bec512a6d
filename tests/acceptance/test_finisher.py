"""The finisher, when the store does not take what it writes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stagepost import App, JobState
from stagepost.model.identity import new_id
from stagepost.model.outcome import Completed
from stagepost.store import connection
from stagepost.store.async_store import AsyncStore
from stagepost.store.leases import claim
from stagepost.worker import finisher
from stagepost.worker.finisher import Finisher
from stagepost.worker.flights import Flight, Flights


async def test_outcomes_behind_one_that_lost_its_lease_in_a_lock_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOCK_SECONDS", 0.01)
    monkeypatch.setattr(finisher, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(finisher, "MOST_AT_ONCE", 2)
    app = App(f"sqlite:///{tmp_path}/stagepost.db")
    task = app.task(name="task")(lambda: None)
    for _ in range(4):
        task.enqueue()
    lease = app.settings.lease_duration
    leased = app.store.run(claim("default", owner=new_id(), task_names=["task"], slots=4, lease=lease))
    flights, known = [Flight(job, float("inf")) for job in leased], Flights()
    known.add(flights)
    writer = Finisher(AsyncStore(app.store), known)
    for flight in flights:
        writer.put(flight, Completed())
    flights[0].is_lost = True

    other = sqlite3.connect(tmp_path / "stagepost.db", isolation_level=None)
    other.execute("begin immediate")
    await writer.run_once()
    other.execute("rollback")
    while writer.pending:
        await writer.run_once()

    assert [app.client.job(flight.job.id).state for flight in flights[1:]] == [JobState.COMPLETED] * 3
    assert (writer.settled, writer.lost, len(known)) == (3, 1, 0)
    other.close()
    app.close()
