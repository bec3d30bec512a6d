"""The stages of a run, the same for every contender; each returns the facts of its JSON line."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.kit.contender import NAP_SECONDS, Contender
from benchmarks.kit.ledger import LEDGER_VARIABLE, Ledger
from benchmarks.kit.processes import Crew, CrewFailed, cpu_seconds, memory_bytes, tree

__all__ = [
    "Bench", "Meter", "begin_of", "crewed", "drain", "enqueue_each", "enqueue_keyed", "enqueue_many", "idle", "latency",
    "nap", "until_nothing_is_left",
]  # fmt: skip

POLL_SECONDS = 0.01
STALL_SECONDS = 120.0
BULK_CHUNK = 10_000
CURVE_SECONDS = 0.5
CURVE_POINTS = 100
WARM_UP_JOBS = 5
SETTLE_SECONDS = 3.0
PAUSES = (0.05, 0.25)
"""Between two samples of latency: long enough to be idle, and uneven, so as not to keep step with a poll."""

Facts = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """Where a stage runs: its contender, a directory of its own, and the server's processes."""

    contender: Contender
    directory: Path
    server_pids: Sequence[int] = ()
    broker_pids: Sequence[int] = ()

    @property
    def url(self) -> str:
        """The address of the contender's database."""
        return self.contender.url

    def server_seconds(self) -> float | None:
        """CPU time of the database or broker so far; None where it is a library inside the workers."""
        return cpu_seconds(self.server_pids) if self.server_pids else None

    def broker_seconds(self) -> float:
        """CPU time so far of the broker beside it; 0 where there is none."""
        return cpu_seconds(self.broker_pids) if self.broker_pids else 0.0


@dataclass
class Meter:
    """Time and CPU time from its making to `stop`; `worker_seconds` reads the CPU time so far."""

    bench: Bench
    worker_seconds: Callable[[], float]
    began_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._worker, self._server = self.worker_seconds(), self.bench.server_seconds()
        self._broker = self.bench.broker_seconds()
        self.began_at = time.monotonic()

    def stop(self, *, at: float | None = None) -> Facts:
        """Take the differences; `at` is when the work ended, if that was before now."""
        seconds = (time.monotonic() if at is None else at) - self.began_at
        server = self.bench.server_seconds()
        beside = {"broker_cpu_seconds": self.bench.broker_seconds() - self._broker} if self.bench.broker_pids else {}
        return {
            "seconds": seconds,
            "worker_cpu_seconds": self.worker_seconds() - self._worker,
            "server_cpu_seconds": None if server is None or self._server is None else server - self._server,
            **beside,
        }


def enqueue_each(bench: Bench, jobs: int) -> Facts:
    """Ask for jobs one by one."""
    return _enqueue(bench, jobs, lambda: bench.contender.enqueue_each(range(jobs)), is_sent=True)


def enqueue_many(bench: Bench, jobs: int, *, is_sent: bool = True) -> Facts:
    """Ask for jobs in chunks of ten thousand."""

    def ask() -> None:
        for first in range(0, jobs, BULK_CHUNK):
            bench.contender.enqueue_many(range(first, min(first + BULK_CHUNK, jobs)))

    return _enqueue(bench, jobs, ask, is_sent=is_sent)


def enqueue_keyed(bench: Bench, jobs: int, *, keys: int) -> Facts:
    """Enqueue jobs that may run one at a time per key; neighbours have different keys.

    Nothing sends them to a broker meanwhile, because jobs that wait for their key are sent later anyway.
    """
    return _enqueue(bench, jobs, lambda: bench.contender.enqueue_keyed(range(jobs), keys=keys), is_sent=False)


def _enqueue(bench: Bench, jobs: int, ask: Callable[[], None], *, is_sent: bool) -> Facts:
    """Ask for jobs; where others carry them from the store to a broker, until that has them all."""
    senders = bench.contender.senders() if is_sent else []
    with Crew(senders, environment=bench.contender.environment(), log=bench.directory / "senders.log") as crew:
        if senders:
            bench.contender.until_senders_work()
        meter = Meter(bench, lambda: time.process_time() + cpu_seconds(crew.pids))
        ask()
        asked = time.monotonic() - meter.began_at
        deadline = time.monotonic() + STALL_SECONDS
        while senders and (unsent := bench.contender.unsent()):
            crew.check()
            if time.monotonic() > deadline:
                raise CrewFailed(f"{unsent} jobs were not sent in {STALL_SECONDS:g} s:\n{crew.log_tail()}")
            time.sleep(POLL_SECONDS)
        return {"count": jobs, **meter.stop(), "asked_seconds": asked}


def drain(
    bench: Bench, jobs: int, *, processes: int, stop_after: int | None = None, seconds: float | None = None
) -> Facts:
    """Run what is queued, `jobs` in number, and check the ledger.

    The clock runs from the moment when every process has begun a job (or a quarter of the jobs has begun), so that
    no interpreter's start is measured, until the store says that nothing is left. `stop_after` ends it after so
    many jobs, `seconds` after so long.
    """
    goal = min(jobs, stop_after or jobs)
    commands = bench.contender.commands(processes=processes, concurrency=None)
    with crewed(bench, jobs, commands) as (crew, ledger, verdict):
        wait_until(crew, ledger, lambda: ledger.processes >= processes or ledger.begun >= goal / 4)
        meter, before = Meter(bench, lambda: cpu_seconds(crew.pids)), ledger.begun
        curve = _watch(crew, ledger, goal, give_up_at=None if seconds is None else time.monotonic() + seconds)
        begun, ended_at = ledger.begun, time.monotonic()
        if begun >= jobs:
            ended_at = until_nothing_is_left(crew, bench.contender)
        facts = {"count": begun - before, **meter.stop(at=ended_at), "processes_seen": ledger.processes}
    return {**facts, "curve": curve, **verdict()}


def nap(bench: Bench, jobs: int, *, concurrency: int) -> Facts:
    """Run jobs that sleep, so many at once in one process; `efficiency` is ideal time / time.

    The time is the handlers', from the first that begins to the last that wakes up: it tells how well slots are kept
    busy, not how soon a store hears of it.
    """
    bench.contender.enqueue_naps(range(jobs))
    commands = bench.contender.commands(processes=1, concurrency=concurrency)
    with crewed(bench, jobs, commands) as (crew, ledger, verdict):
        wait_until(crew, ledger, lambda: ledger.begun > 0)
        meter = Meter(bench, lambda: cpu_seconds(crew.pids))
        _watch(crew, ledger, jobs)
        ended_at = until_nothing_is_left(crew, bench.contender)
        facts = {"count": jobs, **meter.stop(at=ended_at)}
    facts["seconds"] = ledger.last_begun_at() + NAP_SECONDS - ledger.first_begun_at()
    ideal = jobs * NAP_SECONDS / concurrency
    return {**facts, "efficiency": ideal / facts["seconds"], **verdict()}


def latency(bench: Bench, samples: int) -> Facts:
    """Ask an idle worker for single jobs: from before each request until its handler begins."""
    jobs = WARM_UP_JOBS + samples
    commands = bench.contender.commands(processes=1, concurrency=None)
    milliseconds = []
    with crewed(bench, jobs, commands) as (crew, ledger, verdict):
        for number in range(jobs):
            asked_at = time.monotonic()
            bench.contender.enqueue(number)
            milliseconds.append((begin_of(crew, ledger, number) - asked_at) * 1000)
            time.sleep(random.uniform(*PAUSES))
        until_nothing_is_left(crew, bench.contender)
    return {"count": samples, "milliseconds": milliseconds[WARM_UP_JOBS:], **verdict()}


def idle(bench: Bench, seconds: float) -> Facts:
    """Watch a worker that has run one job and has nothing more to do."""
    commands = bench.contender.commands(processes=1, concurrency=None)
    with crewed(bench, 1, commands) as (crew, ledger, verdict):
        bench.contender.enqueue(0)
        begin_of(crew, ledger, 0)
        until_nothing_is_left(crew, bench.contender)
        time.sleep(SETTLE_SECONDS)
        meter = Meter(bench, lambda: cpu_seconds(crew.pids))
        time.sleep(seconds)
        facts = {"count": 1, **meter.stop(), "memory_bytes": memory_bytes(crew.pids)}
        facts["processes_alive"] = len(tree(crew.pids))
        crew.check()
    return {**facts, **verdict()}


@contextmanager
def crewed(bench: Bench, jobs: int, commands: list[list[str]]) -> Iterator[tuple[Crew, Ledger, Callable[[], Facts]]]:
    """Start workers; the verdict compares ledger and store, and is asked for when they have stopped."""
    contender = bench.contender
    ledger = Ledger(bench.directory / "ledger", jobs)
    ended_before = contender.ended()
    environment = {**contender.environment(), LEDGER_VARIABLE: str(ledger.directory)}
    crew = Crew(commands, environment=environment, log=bench.directory / "workers.log")

    def verdict() -> Facts:
        ended = contender.ended()
        new = None if ended is None or ended_before is None else ended - ended_before
        left, interrupted = contender.left() - ledger.others_left, ledger.begun < ledger.jobs
        faults = ledger.faults(left=left, ended=new, interrupted=interrupted)
        facts = {"ledger": "; ".join(faults) or "exact", "workers_killed": crew.killed}
        return {**facts, "run_again": ledger.unsettled(left=left)} if interrupted else facts

    with crew:
        yield crew, ledger, verdict


def wait_until(crew: Crew, ledger: Ledger, condition: Callable[[], bool]) -> None:
    """Poll until the condition holds; an error if nothing moves for long."""
    moved_at, seen = time.monotonic(), ledger.begun
    while not condition():
        crew.check()
        if ledger.begun != seen:
            moved_at, seen = time.monotonic(), ledger.begun
        if time.monotonic() - moved_at > STALL_SECONDS:
            text = f"{seen} of {ledger.jobs} jobs began, then none for {STALL_SECONDS:g} s"
            raise CrewFailed(f"{text}:\n{crew.log_tail()}")
        time.sleep(POLL_SECONDS)


def _watch(crew: Crew, ledger: Ledger, goal: int, *, give_up_at: float | None = None) -> list[tuple[float, int]]:
    """Wait until `goal` jobs have started; returns how many had started, by seconds from now."""
    first = time.monotonic()
    curve: list[tuple[float, int]] = []

    def is_done() -> bool:
        now, begun = time.monotonic(), ledger.begun
        if not curve or now - first >= curve[-1][0] + CURVE_SECONDS or begun >= goal:
            curve.append((round(now - first, 3), begun))
        return begun >= goal or (give_up_at is not None and now > give_up_at)

    wait_until(crew, ledger, is_done)
    return _thinned(curve)


def _thinned(curve: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Keep some points of a long curve, its last among them."""
    step = -(-len(curve) // CURVE_POINTS)
    return [*curve[: -1 : step or 1], *curve[-1:]]


def until_nothing_is_left(crew: Crew, contender: Contender) -> float:
    """Wait until every job has ended in the store; returns when that was first seen."""
    deadline = time.monotonic() + STALL_SECONDS
    while True:
        asked_at = time.monotonic()
        if (left := contender.left()) == 0:
            return asked_at
        crew.check()
        if asked_at > deadline:
            raise CrewFailed(f"all jobs began, but {left} have not ended in the store:\n{crew.log_tail()}")
        time.sleep(POLL_SECONDS)


def begin_of(crew: Crew, ledger: Ledger, number: int) -> float:
    give_up_at = time.monotonic() + STALL_SECONDS
    while (begun_at := ledger.begun_at(number)) is None:
        crew.check()
        if time.monotonic() > give_up_at:
            raise CrewFailed(f"job {number} did not begin within {STALL_SECONDS:g} s:\n{crew.log_tail()}")
        time.sleep(0.005)
    return begun_at
