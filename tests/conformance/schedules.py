"""Helpers that declare schedules and read what they did."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from stagepost.model.schedule import CatchUp
from stagepost.store.listing import list_jobs
from stagepost.store.schedules import Fired, Schedule, list_schedules, put_schedule
from tests.conformance.bench import Bench
from tests.conformance.samples import new_job

SECOND = 1_000_000
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def declare(store: Bench, name: str = "report", rule: str = "every 1m", **changes: Any) -> None:
    facts: dict[str, Any] = {"rule": rule, "template": new_job(), "catch_up": CatchUp.ALL}
    store.run(put_schedule(name, **(facts | changes)))


def the(store: Bench, name: str = "report") -> Schedule:
    [schedule] = [schedule for schedule in store.run(list_schedules()) if schedule.name == name]
    return schedule


def due_times_fired(fired: Fired) -> list[tuple[str, int]]:
    return [(run.schedule_name, run.due_at) for run in fired.runs]


def job_ids(store: Bench) -> list[str]:
    return [job.id for job in store.run(list_jobs(most=2000))]
