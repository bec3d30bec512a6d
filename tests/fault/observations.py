"""Observations: each sample is examined when it is taken, and only what the oracle needs is kept."""

from __future__ import annotations

import threading
import time
from collections import Counter as Tally
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from stagepost.model.lifecycle import FINAL
from stagepost.store.queues import ALL_QUEUES
from tests.fault.backends import Backend
from tests.fault.samples import Counter, JobRow, Sample, counted_sample_of, live_sample_of

HOLDING_SLOTS = {"queued", "running"}
"""States in which a job counts against the limit of its key, if that is stored with it."""
LIMITS = {"transfer_two_at_once": 2, "transfer_three_at_once": 3}
"""How many jobs of a key may run at once, where the code says so."""
REST = 4
"""Seconds in which samples show only live jobs, per second that a sample of all jobs took beyond its interval."""


class Peak(NamedTuple):
    """The largest number so far, and the sample that showed it first."""

    number: int
    sample: int


class Excess(NamedTuple):
    """The largest number of jobs that held slots of a limit key when fewer were allowed."""

    number: int
    allowed: int
    sample: int


class LastSeen(msgspec.Struct, gc=False):
    """What is kept of one job; the fingerprint is the hash of an ended job's row."""

    attempt: int
    state: str
    fingerprint: int


class Observations:
    """What the samples of one run have shown; its size depends on the number of jobs, not on that of samples."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.samples = 0
        self.shrunk: dict[str, str] = {}
        """The first time that the attempt of a job became smaller, by job id."""
        self.altered: dict[str, str] = {}
        """The first time that a job did not stay as it had ended, by job id."""
        self.unleased_us: dict[str, Peak] = {}
        """How long a job ran without a lease, by job id."""
        self.queued_us: dict[str, Peak] = {}
        """How long a job was queued, by job id."""
        self.holding: dict[str, Peak] = {}
        """How many jobs held slots at once, by limit key."""
        self.exceeded: dict[str, Excess] = {}
        """Limit keys that let too many jobs through."""
        self.running: dict[str, Peak] = {}
        """How many jobs ran at once, by queue."""
        self.drifted: dict[str, Counter] = {}
        """The first wrong value of a counter, by its name."""
        self.stored: set[int] = set()
        """All values that counters had."""
        self._jobs: dict[str, LastSeen] = {}
        self._ended: set[str] = set()
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        """Examine the next sample."""
        for job in sample.jobs.values():
            self._compare(job)
            self._measure_times(job)
        if sample.has_ended_jobs:
            for job_id in self._ended - sample.jobs.keys():
                self._record_altered(job_id, "gone")
        self._count_limited(sample)
        self._count_running(sample)
        for counter in sample.counters:
            self.stored.add(counter.stored)
            if counter.stored != counter.counted:
                self.drifted.setdefault(counter.name, counter)
        self.samples += 1

    def _compare(self, job: JobRow) -> None:
        now = LastSeen(job.attempt, job.state, hash(job) if job.state in FINAL else 0)
        before = self._jobs.get(job.id, now)
        if now.attempt < before.attempt:
            self.shrunk.setdefault(job.id, f"attempt {now.attempt} after {before.attempt} (sample {self.samples})")
        if job.id in self._ended and now != before:
            self._record_altered(job.id, job.state)
        if job.state in FINAL:
            self._ended.add(job.id)
        self._jobs[job.id] = now

    def _record_altered(self, job_id: str, state: str) -> None:
        before = self._jobs[job_id].state
        self.altered.setdefault(job_id, f"was {before} and is {state} (sample {self.samples})")
        self._ended.remove(job_id)

    def _measure_times(self, job: JobRow) -> None:
        if job.state == "running":
            self._raise(self.unleased_us, job.id, -(job.lease_left_us or 0))
        if job.state == "queued":
            self._raise(self.queued_us, job.id, job.waited_us or 0)

    def _count_limited(self, sample: Sample) -> None:
        limits: dict[str, list[int]] = {}
        for job in sample.jobs.values():
            if job.limit_key is not None and job.state in ({"running"} if job.limit is None else HOLDING_SLOTS):
                limits.setdefault(job.limit_key, []).append(job.limit or LIMITS.get(job.limit_key, 1))
        for key, allowed in limits.items():
            self._raise(self.holding, key, len(allowed))
            worst = self.exceeded.get(key)
            if len(allowed) > max(allowed) and (worst is None or len(allowed) > worst.number):
                self.exceeded[key] = Excess(len(allowed), max(allowed), self.samples)

    def _count_running(self, sample: Sample) -> None:
        running = Tally(job.queue for job in sample.jobs.values() if job.state == "running")
        running[ALL_QUEUES] = running.total()
        for queue, number in running.items():
            self._raise(self.running, queue, number)

    def _raise(self, peaks: dict[str, Peak], name: str, number: int) -> None:
        if number > 0 and (name not in peaks or number > peaks[name].number):
            peaks[name] = Peak(number, self.samples)


class Sampler(threading.Thread):
    """Takes a sample of the live jobs every so often while faults happen, and of all jobs where that costs little."""

    def __init__(self, backend: Backend, observations: Observations, *, seconds: float = 0.5) -> None:
        super().__init__(name="fault-sampler", daemon=True)
        self._backend = backend
        self._observations = observations
        self._seconds = seconds
        self._rests_until = 0.0
        self._stopped = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopped.wait(self._seconds):
                self.take()
        except Exception as error:  # noqa: BLE001 - raised in the test's thread
            self._error = error

    def take(self) -> None:
        """Take one sample and examine it."""
        began = time.monotonic()
        if began < self._rests_until:
            self._observations.add(live_sample_of(self._backend))
            return
        self._observations.add(counted_sample_of(self._backend))
        ended = time.monotonic()
        self._rests_until = ended + REST * (ended - began - self._seconds)

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()
        if self._error is not None:
            raise self._error
