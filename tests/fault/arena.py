"""One run against one database: a producer with a journal, workers as real processes, and the oracle."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stagepost.config import Settings
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database import Store
from stagepost.database.statement import Operation
from stagepost.errors import StoreUnavailable
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import FINAL
from stagepost.store.jobs import enqueue_many
from tests.fault.backends import Backend
from tests.fault.nursery import Nursery, WorkerProcess
from tests.fault.observations import Observations, Sampler
from tests.fault.oracle import verify
from tests.fault.records import SINK, Evidence, Journal, Note, Sink, gather
from tests.fault.samples import JobRow, job_of, sample_of
from tests.fault.trapped import KILL_POINT, KillPoint
from tests.fault.uploads import UPLOAD, Upload
from tests.fault.worker_main import QUEUES, TASKS

T = TypeVar("T")

LEASE = 1.0
LASTING_LEASE = 60.0
"""For workers that must not lose a lease, however little a busy machine lets them run."""
STEADY_LEASE = 21.0
"""The shortest that outlives ten seconds without a processor, at any moment between two renewals."""
WAIT_SECONDS = 120.0
"""A deadline, not an expectation."""
SETTINGS = {
    "lease_seconds": LEASE,
    "concurrency": 8,
    "prefetch": 4,
    "poll_shortest_seconds": 0.02,
    "poll_longest_seconds": 0.1,
    "shutdown_timeout_seconds": 5.0,
}
SEED = "FAULT_SEED"
PRODUCER = "tests.fault.uploads"


class Arena:
    """Where a fault is tried."""

    def __init__(self, backend: Backend, nursery: Nursery, folder: Path) -> None:
        self.backend = backend
        self.folder = folder
        self.seed = int(os.environ.get(SEED, "20260101"))
        self.random = random.Random(self.seed)  # noqa: S311 - repeatable, not secret
        self.journal = Journal(folder / "journal")
        self.sink = Sink(folder / "sink")
        self.url = backend.url
        """Where workers and the producer connect to; a test may put a proxy in between."""
        self.settings: dict[str, Any] = {}
        """What is said to all processes, such as where a broker is."""
        self.observed = Observations()
        self._nursery = nursery

    def enqueue(
        self, task: str, number: int = 1, *, queue: str = "default", tries: int = 5, **arguments: Any
    ) -> list[str]:
        """Enqueue jobs as a careful producer does, and record the result in the journal."""
        return self.submit(jobs_of(task, number, queue=queue, tries=tries, **arguments))

    def submit(self, jobs: Sequence[NewJob]) -> list[str]:
        ids = [job.id for job in jobs]
        self.journal.ask(ids)
        with contextlib.closing(Store.at(self.url, pool_size=1)) as store:
            try:
                store.run(enqueue_many(jobs))
            except StoreUnavailable:
                return ids
        self.journal.confirm(ids)
        return ids

    def operate(self, operation: Operation[T]) -> T:
        """Run an operator's operation, bypassing any proxy."""
        with contextlib.closing(Store.at(self.backend.url, pool_size=1)) as store:
            return store.run(operation)

    def start_worker(
        self,
        *,
        kill_point: KillPoint | None = None,
        queues: Iterable[str] = (),
        tasks: Iterable[str] = (),
        environment: dict[str, str] | None = None,
        **settings: Any,
    ) -> WorkerProcess:
        """Start a worker process for some queues and tasks, or all; settings are those of `Settings`."""
        variables = self.environment(**settings) | {QUEUES: ",".join(queues), TASKS: ",".join(tasks)}
        if kill_point is not None:
            variables[KILL_POINT] = msgspec.json.encode(kill_point).decode()
        return self._nursery.start(variables | (environment or {}))

    def start_producer(self, upload: Upload) -> WorkerProcess:
        """Start a process that adds a batch's items, or resumes adding them."""
        variables = self.environment() | {UPLOAD: msgspec.json.encode(upload).decode()}
        return self.start_program(PRODUCER, variables)

    def start_program(self, program: str, variables: dict[str, str]) -> WorkerProcess:
        """Start the `main` of another module of these tests."""
        return self._nursery.start(variables, program=program)

    def environment(self, **settings: Any) -> dict[str, str]:
        """The variables that tell a worker where and how to work."""
        values = {**SETTINGS, "database_url": self.url, **self.settings, **settings}
        known = {*Settings.__struct_fields__, *(f"rabbitmq_{name}" for name in RabbitmqSettings.__struct_fields__)}
        assert values.keys() <= known, f"a worker would ignore {values.keys() - known}"
        variables = {f"STAGEPOST_{name.upper()}": str(value) for name, value in values.items()}
        return variables | {SINK: str(self.sink.path)}

    def jobs(self, ids: Iterable[str] | None = None) -> dict[str, JobRow]:
        """Read jobs from the database."""
        jobs = sample_of(self.backend).jobs
        return jobs if ids is None else {job_id: jobs[job_id] for job_id in ids if job_id in jobs}

    def job(self, job_id: str) -> JobRow:
        return job_of(self.backend, job_id)

    def live(self) -> set[str]:
        """Ids of the jobs that have not ended."""
        rows = self.backend.rows("select id, state from stagepost_job")
        return {str(job_id) for job_id, state in rows if state not in FINAL}

    def lease_left(self, job_id: str) -> float:
        """Seconds until its lease ends, by the database's clock."""
        return (self.job(job_id).lease_left_us or 0) / 1e6

    def notes(self, what: str, ids: Iterable[str] | None = None) -> list[Note]:
        wanted = None if ids is None else set(ids)
        return [note for note in self.sink.notes(what) if wanted is None or note.job_id in wanted]

    def wait(self, condition: Callable[[], bool], what: str, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait for real processes, which give no signal to wait on."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds:g} s in vain for {what}; seed {self.seed}{self._report()}")
            time.sleep(0.02)

    def wait_for_end(self, ids: Iterable[str] | None = None, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the given jobs, or all jobs, have ended."""
        chosen = set(self.jobs() if ids is None else ids)
        self.wait(lambda: self.have_ended(chosen), "jobs to end", seconds=seconds)

    def pause(self, worker: WorkerProcess) -> None:
        """Pause a worker, but not while it holds SQLite's only lock, which would block everybody else."""
        if self.backend.name != "sqlite":
            worker.pause()
            return
        path = self.url.partition(":///")[2]
        with contextlib.closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as holder:
            holder.execute("begin immediate")  # while we have the lock, the worker has not
            worker.pause()
            holder.execute("rollback")

    def end_leases(self, ids: Iterable[str] | None = None) -> None:
        """Let the leases of the given jobs, or of all, expire now, as if their time had passed without a renewal."""
        for job_id in self.live() if ids is None else ids:
            self.backend.rows(
                "update stagepost_job set lease_until = :now where id = :id and state = 'running'", id=job_id
            )

    def wait_for_renewal(self, ids: Iterable[str]) -> None:
        """Wait until the leases of running jobs were renewed, in the same attempt."""
        before = {job_id: self._lease_of(job_id) for job_id in ids}

        def are_renewed() -> bool:
            now = {job_id: self._lease_of(job_id) for job_id in before}
            return all(
                now[job_id][0] == attempt and now[job_id][1] > until for job_id, (attempt, until) in before.items()
            )

        self.wait(are_renewed, "leases to be renewed")

    def _lease_of(self, job_id: str) -> tuple[int, int]:
        """The number of a running attempt and the end of its lease; None if the job is not running."""
        rows = self.backend.rows(
            "select attempts, lease_until from stagepost_job where id = :id and state = 'running'", id=job_id
        )
        return rows[0] if rows else (0, 0)

    def supervise(self, condition: Callable[[], bool], *, seconds: float = 2 * WAIT_SECONDS, **options: Any) -> int:
        """Keep one worker alive until the condition holds, and free dead ones' jobs at once; returns how many died."""
        worker = self.start_worker(**options)
        deaths = 0
        deadline = time.monotonic() + seconds
        while not condition():
            if worker.status is not None:
                deaths += 1
                self.end_leases()
                worker = self.start_worker(**options)
            if time.monotonic() > deadline:
                raise AssertionError(f"{deaths} deaths in {seconds:g} s; seed {self.seed}{self._report()}")
            time.sleep(0.02)
        return deaths

    def crashes(self) -> int:
        """How many attempts were lost to kills, as far as the store has noticed."""
        [(crashes,)] = self.backend.rows(
            "select sum(crashes) from (select crashes from stagepost_job union all "
            "select crashes from stagepost_job_history) as job"
        )
        return int(crashes or 0)

    def have_ended(self, ids: Iterable[str]) -> bool:
        """Whether all these jobs have ended."""
        return self.live().isdisjoint(ids)

    @contextlib.contextmanager
    def sampling(self, *, seconds: float = 0.5) -> Iterator[None]:
        """Sample the database regularly during the body, for the oracle."""
        with Sampler(self.backend, self.observed, seconds=seconds):
            yield

    def verify(self, **changes: Any) -> Evidence:
        """Let the oracle check the run; `changes` override limits of `Evidence`."""
        evidence = gather(
            self.backend, seed=self.seed, journal=self.journal, sink=self.sink, observed=self.observed, **changes
        )
        verify(evidence)
        return evidence

    def logged(self) -> str:
        """What all workers of this test have logged."""
        return "".join(worker.logged() for worker in self._nursery.workers)

    def stop_workers(self) -> None:
        """Ask all workers to stop, and wait until they have."""
        for worker in self._nursery.workers:
            worker.terminate()
        for worker in self._nursery.workers:
            worker.wait()

    def _report(self) -> str:
        for worker in self._nursery.workers:
            worker.signal(signal.SIGUSR2)  # where its threads are goes to its log
        time.sleep(0.2)
        unfinished = [job for job in self.jobs().values() if job.state not in FINAL]
        logs = [
            f"\n--- {worker.log.name}, status {worker.status}\n{worker.logged()[-5000:]}"
            for worker in self._nursery.workers[-4:]
        ]
        return "".join([f"\n{job}" for job in unfinished[:10]] + logs)


def jobs_of(task: str, number: int = 1, *, queue: str = "default", tries: int = 5, **arguments: Any) -> list[NewJob]:
    """Jobs with these arguments, not enqueued yet."""
    payload = json.dumps(arguments)
    return [
        NewJob(id=new_id(), task_name=task, payload=payload, queue_name=queue, max_attempts=tries)
        for _ in range(number)
    ]
