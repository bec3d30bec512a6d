"""What a handler does after it has ended its job itself is not disturbed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from stagepost import App, JobContext, Settings
from tests.acceptance.helpers import work


def test_a_handler_that_completed_its_job_may_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path}/stagepost.db", lease=0.9, poll_shortest=0.01)
    app = App(settings=settings)
    went_on: list[str] = []

    @app.task
    async def tidy_up_afterwards(job: JobContext) -> None:
        with app.transaction() as tx:
            job.complete(tx, None)
        await asyncio.sleep(0.5)  # longer than until the next renewal, which no longer finds the job
        went_on.append(job.id)

    job_id = tidy_up_afterwards.enqueue().id
    with caplog.at_level(logging.WARNING):
        work(app)
    app.close()

    assert went_on == [job_id]
    assert not caplog.records
