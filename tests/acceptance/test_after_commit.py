"""A handler that has ended its job may continue undisturbed, and the worker writes no second outcome."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stagepost import App, JobContext, JobState
from stagepost.store.leases import Renewed
from stagepost.worker import finisher
from stagepost.worker.lease_keeper import LeaseKeeper
from tests.acceptance.helpers import LIMIT, work


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/stagepost.db")


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that leases were renewed."""
    done: list[None] = []
    renew = LeaseKeeper.run_once

    def noted(keeper: LeaseKeeper) -> Renewed | None:
        renewed = renew(keeper)
        done.append(None)
        return renewed

    monkeypatch.setattr(LeaseKeeper, "run_once", noted)
    return done


@pytest.mark.usefixtures("quick_renewals")
def test_a_handler_may_continue_after_completing_its_job(
    app: App, renewals: list[None], caplog: pytest.LogCaptureFixture
) -> None:
    went_on: list[str] = []

    @app.task
    async def tidy_up_afterwards(job: JobContext) -> None:
        with app.transaction() as tx:
            job.complete(tx, None)
        before = len(renewals)
        while len(renewals) < before + 2:  # noqa: ASYNC110 - a renewal that no longer finds the job
            await asyncio.sleep(0.01)
        went_on.append(job.id)

    job_id = tidy_up_afterwards.enqueue().id
    with caplog.at_level(logging.WARNING):
        work(app)
    app.close()

    assert went_on == [job_id]
    # A renewal that found the file locked for long, on a busy machine, is tried again and disturbs nobody.
    assert not [record for record in caplog.records if "lease_keeper" not in record.getMessage()]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the worker asks the store for when attempts are over."""
    calls: list[str] = []
    for name in ("settle", "ended_by"):
        monkeypatch.setattr(finisher, name, noted(name, getattr(finisher, name), calls))
    return calls


def noted(name: str, operation: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        calls.append(name)
        return operation(*arguments)

    return call


def in_a_lent_transaction(app: App, job: JobContext) -> None:
    with app.transaction() as tx:
        job.complete(tx)


def in_one_that_is_rolled_back(app: App, job: JobContext) -> None:
    with contextlib.suppress(ZeroDivisionError), app.transaction() as tx:
        job.complete(tx)
        raise ZeroDivisionError


def in_a_transaction_of_its_own(app: App, job: JobContext) -> None:
    path = app.settings.database_url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, timeout=LIMIT)) as own, own:
        job.complete(own)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (in_a_lent_transaction, []),
        (in_one_that_is_rolled_back, ["ended_by", "settle"]),
        (in_a_transaction_of_its_own, ["ended_by"]),
    ],
)
def test_the_worker_writes_the_outcome_that_its_handler_did_not(
    app: App, asked: list[str], ends: Callable[[App, JobContext], None], expected: list[str]
) -> None:
    @app.task
    def job_of_its_own(job: JobContext) -> None:
        ends(app, job)

    job_id = job_of_its_own.enqueue().id
    worker = work(app)
    stored = app.client.job(job_id)
    app.close()

    assert asked == expected
    assert (stored.state, stored.attempt, worker.parts.finisher.settled) == (JobState.COMPLETED, 1, 1)


def test_the_worker_writes_nothing_after_an_async_transaction_of_the_app(app: App, asked: list[str]) -> None:
    @app.task
    async def job_of_its_own(job: JobContext) -> None:
        async with app.transaction() as tx:
            await job.complete_async(tx)

    job_id = job_of_its_own.enqueue().id
    worker = work(app)
    stored = app.client.job(job_id)
    app.close()

    assert asked == []
    assert (stored.state, stored.attempt, worker.parts.finisher.settled) == (JobState.COMPLETED, 1, 1)
