"""The oracle's evidence: the producer's journal, the handlers' sink, and observations of the database."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.fault.backends import Backend
from tests.fault.observations import Observations
from tests.fault.samples import JobRow, counted_sample_of, shared

SINK = "FAULT_SINK"
"""The variable that tells a worker's handlers where to write."""


class Journal:
    """The producer's record: `maybe` is on disk before a request, `ok` after it is confirmed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, ids: Iterable[str]) -> None:
        self._write("maybe", ids)

    def confirm(self, ids: Iterable[str]) -> None:
        self._write("ok", ids)

    def ids(self, verdict: str) -> set[str]:
        if not self.path.exists():
            return set()
        with self.path.open() as file:
            lines = (line.split() for line in file)
            return {sys.intern(job_id) for said, job_id in lines if said == verdict}

    def _write(self, verdict: str, ids: Iterable[str]) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{verdict} {job_id}\n" for job_id in ids)
            file.flush()
            os.fsync(file.fileno())


class Note(NamedTuple):
    """One line of the sink."""

    job_id: str
    attempt: int
    what: str
    owner: str
    pid: int


class Sink:
    """A place outside the database that handlers append to, whatever happens to their transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, job_id: str, attempt: int, what: str, owner: str) -> None:
        line = json.dumps([job_id, attempt, what, owner, os.getpid()]) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())  # one call: lines of many processes never mix
        finally:
            os.close(descriptor)

    def notes(self, what: str | None = None) -> list[Note]:
        if not self.path.exists():
            return []
        with self.path.open() as file:
            whole = (line for line in file if line.endswith("\n"))  # the last line may be on its way
            notes = (Note(*shared(json.loads(line))) for line in whole)
            return [note for note in notes if what in {None, note.what}]


@dataclass
class Evidence:
    """Everything known about a finished run."""

    seed: int
    jobs: dict[str, JobRow] = field(default_factory=dict)
    observed: Observations = field(default_factory=Observations)
    """What samples showed, up to the last one."""
    accepted: set[str] = field(default_factory=set)
    """Ids whose enqueue was confirmed."""
    asked: set[str] = field(default_factory=set)
    """Ids that were asked for, confirmed or not."""
    ledger: Rows = field(default_factory=list)
    """(job id, attempt) of every committed effect."""
    notes: list[Note] = field(default_factory=list)
    failures: Rows = field(default_factory=list)
    """(job id, attempt) of every recorded failure."""
    events: list[tuple[str, str, int]] = field(default_factory=list)
    """(job id, state, attempt) of every recorded end, in the order of writing."""
    operated: set[str] = field(default_factory=set)
    """Ids that an operator's recorded action moved."""
    queue_limits: dict[str, int] = field(default_factory=dict)
    """How many jobs of a queue may run at once; set before any did."""
    runs: Rows = field(default_factory=list)
    """(schedule, due time, job id) of every firing."""
    grace_us: int = 15_000_000
    idle_us: int = 60_000_000


Rows = list[tuple[Any, ...]]


def gather(
    backend: Backend, *, seed: int, journal: Journal, sink: Sink, observed: Observations, **limits: Any
) -> Evidence:
    """Collect the evidence of a finished run, including a last sample."""
    last = counted_sample_of(backend)
    observed.add(last)
    return Evidence(
        seed=seed,
        jobs=last.jobs,
        observed=observed,
        accepted=journal.ids("ok"),
        asked=journal.ids("maybe") | journal.ids("ok"),
        ledger=[_attempt(*row) for row in backend.rows("select job_id, attempt from ledger")],
        notes=sink.notes(),
        failures=[_attempt(*row) for row in backend.rows("select job_id, attempt from stagepost_failure")],
        events=[
            (sys.intern(str(job_id)), sys.intern(state), attempt)
            for (facts,) in backend.rows("select facts from stagepost_event order by id")
            for job_id, state, _task, _queue, attempt, *_ in json.loads(facts)
        ],
        operated={
            subject
            for (subject,) in backend.rows(
                "select subject from stagepost_audit where action in ('restart', 'discard', 'cancel')"
            )
        },
        queue_limits=dict(backend.rows("select name, max_running from stagepost_queue where max_running is not null")),
        runs=[
            (name, due, str(job))
            for name, due, job in backend.rows("select schedule_name, due_at, job_id from stagepost_schedule_run")
        ],
        **limits,
    )


def _attempt(job_id: object, attempt: int) -> tuple[str, int]:
    return sys.intern(str(job_id)), attempt
