"""What the oracle is fed: the producer's journal, the handlers' sink, and samples of the database."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stagepost.store import dialect
from stagepost.store.counting import PARTS
from tests.fault.backends import Backend

SINK = "FAULT_SINK"
"""The variable that tells a worker's handlers where to write."""
FACTS = (
    "id, task_name, queue_name, state, attempts, failures, crashes, max_attempts, unique_key, limit_key, limit_slots"
)
JOBS = (
    f"select {FACTS}, locked_by, case when lease_until is null then null else lease_until - :now end, "
    ":now - available_at, null, null from stagepost_job"
)
ENDED = f"select {FACTS}, processed_by, null, null, error, reason from stagepost_job_history"


class Journal:
    """The producer's own record: `maybe` on disk before it asks, `ok` on disk once it was told."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, ids: Iterable[str]) -> None:
        self._write("maybe", ids)

    def confirm(self, ids: Iterable[str]) -> None:
        self._write("ok", ids)

    def ids(self, verdict: str) -> set[str]:
        if not self.path.exists():
            return set()
        lines = (line.split(" ", 1) for line in self.path.read_text().splitlines())
        return {job_id for said, job_id in lines if said == verdict}

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
    """A place outside the database that handlers append to, whatever becomes of their transaction."""

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
        whole, _, _ = self.path.read_text().rpartition("\n")  # the last line may be on its way
        notes = [Note(*json.loads(line)) for line in whole.splitlines()]
        return [note for note in notes if what in {None, note.what}]


@dataclass(frozen=True)
class JobRow:
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


@dataclass(frozen=True)
class Counter:
    """A number that is kept, and the rows it counts."""

    name: str
    stored: int
    counted: int


class Sample(NamedTuple):
    """All jobs at one moment, and perhaps what was counted right after it."""

    jobs: dict[str, JobRow]
    counters: tuple[Counter, ...] = ()


def sample_of(backend: Backend) -> Sample:
    """Read all jobs; in one statement, because between two a job could move from one table to the other."""
    rows = backend.rows(f"{JOBS} union all {ENDED}")
    return Sample({str(row[0]): JobRow(str(row[0]), *row[1:]) for row in rows})


def counted_sample_of(backend: Backend) -> Sample:
    """Read all jobs, and right after them what is counted."""
    return sample_of(backend)._replace(counters=tuple(_counters(backend)))


def _counters(backend: Backend) -> Iterator[Counter]:
    """Every number that is kept, beside its rows; each pair is of one statement, and so of one moment."""
    for part in PARTS:
        statement = "find_live_drift" if part is None else "find_ended_drift"
        sql = dialect._source(backend.dialect.name, statement)
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        for *name, stored, counted in backend.rows(sql, **({} if part is None else {"state": str(part)})):
            before = sums.get((name[0], name[1]), (0, 0))
            sums[name[0], name[1]] = before[0] + int(stored), before[1] + int(counted)
        for (queue_name, class_name), sum_ in sums.items():
            yield Counter(f"{class_name} of queue {queue_name}", *sum_)


class Sampler(threading.Thread):
    """Takes a sample every so often while faults happen."""

    def __init__(self, backend: Backend, *, seconds: float = 0.5) -> None:
        super().__init__(name="fault-sampler", daemon=True)
        self.samples: list[Sample] = []
        self._backend = backend
        self._seconds = seconds
        self._stopped = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopped.wait(self._seconds):
                self.samples.append(counted_sample_of(self._backend))
        except Exception as error:  # noqa: BLE001 - raised in the test's thread
            self._error = error

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()
        if self._error is not None:
            raise self._error


@dataclass
class Evidence:
    """Everything known about a run once it has come to rest."""

    seed: int
    jobs: dict[str, JobRow] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    """Ids whose enqueue was confirmed."""
    asked: set[str] = field(default_factory=set)
    """Ids that were asked for, confirmed or not."""
    ledger: Rows = field(default_factory=list)
    """(job id, attempt) of every committed effect."""
    notes: list[Note] = field(default_factory=list)
    failures: Rows = field(default_factory=list)
    """(job id, attempt) of every recorded failure."""
    operated: set[str] = field(default_factory=set)
    """Ids that an operator's recorded action moved."""
    counters: list[Counter] = field(default_factory=list)
    queue_limits: dict[str, int] = field(default_factory=dict)
    """How many jobs of a queue may run at once; set before any did."""
    runs: Rows = field(default_factory=list)
    """(schedule, due time, job id) of every firing."""
    grace_us: int = 15_000_000
    idle_us: int = 60_000_000


Rows = list[tuple[Any, ...]]


def gather(
    backend: Backend, *, seed: int, journal: Journal, sink: Sink, samples: Iterable[Sample] = (), **limits: Any
) -> Evidence:
    """Collect the evidence of a run that has come to rest."""
    last = counted_sample_of(backend)
    every = [*samples, last]
    return Evidence(
        seed=seed,
        jobs=last.jobs,
        samples=every,
        counters=[counter for sample in every for counter in sample.counters],
        accepted=journal.ids("ok"),
        asked=journal.ids("maybe") | journal.ids("ok"),
        ledger=[(str(job), attempt) for job, attempt in backend.rows("select job_id, attempt from ledger")],
        notes=sink.notes(),
        failures=[
            (str(job), attempt) for job, attempt in backend.rows("select job_id, attempt from stagepost_failure")
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
