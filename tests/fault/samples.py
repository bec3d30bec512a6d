"""Samples: a database's jobs at one moment, and the counts it keeps of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from stagepost.database import dialect
from stagepost.model.lifecycle import JobState
from stagepost.store.counting import PARTS
from tests.fault.backends import Backend

FACTS = (
    "id, task_name, queue_name, state, attempts, failures, crashes, max_attempts, unique_key, limit_key, limit_slots"
)
LIVE = (
    f"select {FACTS}, locked_by, case when lease_until is null then null else lease_until - :now end, "
    ":now - available_at, null, null from stagepost_job"
)
ENDED = f"select {FACTS}, processed_by, null, null, error, reason from stagepost_job_history"


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """A job as the database has it, live or ended."""

    id: str
    task: str
    queue: str
    state: str
    attempt: int
    failures: int
    crashes: int
    max_attempts: int
    key: str | None
    limit_key: str | None
    limit: int | None
    """How many of its limit key may be queued or running at once."""
    owner: str | None
    lease_left_us: int | None
    waited_us: int | None
    error: str | None
    reason: str | None


class Counter(NamedTuple):
    """A number that is kept, and the rows it counts."""

    name: str
    stored: int
    counted: int


class Sample(NamedTuple):
    """The jobs at one moment, and perhaps what was counted right after it."""

    jobs: dict[str, JobRow]
    counters: tuple[Counter, ...] = ()
    has_ended_jobs: bool = True
    """Whether it shows all jobs, or only the live ones."""


def sample_of(backend: Backend) -> Sample:
    """Read all jobs; in one statement, because between two a job could move from one table to the other."""
    return Sample(_read(backend, f"{LIVE} union all {ENDED}"))


def counted_sample_of(backend: Backend) -> Sample:
    """Read all jobs, and right after them what is counted."""
    return sample_of(backend)._replace(counters=tuple(_counters(backend, PARTS)))


def live_sample_of(backend: Backend) -> Sample:
    """Read the live jobs, and right after them what is counted of those."""
    return Sample(_read(backend, LIVE), tuple(_counters(backend, [None])), has_ended_jobs=False)


def job_of(backend: Backend, job_id: str) -> JobRow:
    """Read one job, live or ended."""
    return _read(backend, f"{LIVE} where id = :id union all {ENDED} where id = :id", id=job_id)[job_id]


def _read(backend: Backend, sql: str, **parameters: str) -> dict[str, JobRow]:
    jobs = (JobRow(*shared([str(job_id), *facts])) for job_id, *facts in backend.each_row(sql, **parameters))
    return {job.id: job for job in jobs}


def shared(values: Iterable[Any]) -> Iterator[Any]:
    """Equal strings as one object: ids, states and owners are repeated in very many rows."""
    return (sys.intern(value) if isinstance(value, str) else value for value in values)


def _counters(backend: Backend, parts: Iterable[JobState | None]) -> Iterator[Counter]:
    """Every number that is kept, beside its rows; each pair is of one statement, and so of one moment."""
    for part in parts:
        statement = "find_live_drift" if part is None else "find_ended_drift"
        sql = dialect._source(backend.dialect.name, statement)
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        for *name, stored, counted in backend.rows(sql, **({} if part is None else {"state": str(part)})):
            before = sums.get((name[0], name[1]), (0, 0))
            sums[name[0], name[1]] = before[0] + int(stored), before[1] + int(counted)
        for (queue_name, class_name), sum_ in sums.items():
            yield Counter(f"{class_name} of queue {queue_name}", *sum_)
