"""Stages about jobs that delay each other: how long a quick job waits behind others."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.kit.contender import LONG_SECONDS, RATE, Cannot, Contender, Unknown
from benchmarks.kit.counters import Counters
from benchmarks.kit.ledger import Ledger
from benchmarks.kit.processes import Crew, CrewFailed, cpu_seconds
from benchmarks.kit.stages import Bench, Meter, begin_of, crewed, until_nothing_is_left

__all__ = ["left_of_unknown", "mixed", "rated", "unknown", "waits"]

POLL_SECONDS = 0.01
SETTLE_SECONDS = 1.0
WORKERS = 2
WARM_UP_JOBS = 5
WARM_UP_ROUNDS = 20
WARM_UP_SECONDS = 60.0
PAUSES = (0.005, 0.025)
"""The pause between two plain jobs, long enough for an idle worker to run one."""

Facts = dict[str, Any]


def mixed(bench: Bench, long: int, quick: int, *, slots: int, limit: float) -> Facts:
    """Enqueue long jobs, then quick ones, for two warm workers; `milliseconds` are the waits of the quick ones."""
    contender = bench.contender
    capacity = WARM_UP_ROUNDS * WORKERS * slots + quick + long + quick
    commands = contender.flow_commands(workers=WORKERS, slots=slots)
    with crewed(bench, capacity, commands) as (crew, ledger, verdict):
        first = _warm_up(crew, ledger, contender, slots=slots, quick=quick)
        longs, quicks = range(first, first + long), range(first + long, first + long + quick)
        ledger.jobs = quicks.stop
        meter = Meter(bench, lambda: cpu_seconds(crew.pids))
        contender.enqueue_long(longs)
        asked = _ask_for(contender, quicks)
        _until_begun(crew, ledger, [*longs, *quicks], limit=limit)
        ended_at = _until_ended(crew, ledger, contender, longs) if ledger.begun >= ledger.jobs else None
        facts = {"count": long + quick, **meter.stop(at=ended_at), "processes_seen": ledger.processes}
        facts |= waits(asked, ledger.begun_at)
    return {**facts, "long": long, "slots": slots, "limit_seconds": limit, **verdict()}


def rated(bench: Bench, jobs: int, *, slots: int, seconds: float, limit: float) -> Facts:
    """Enqueue jobs of a rate-limited task, then a plain one, and continue for some seconds after that has started.

    `milliseconds` is the wait of the plain job; `count` is how many of the others started in the whole time.
    """
    contender = bench.contender
    contender.enqueue_rated(())  # says at once whether it has rate limits
    numbers = range(WARM_UP_JOBS, WARM_UP_JOBS + jobs)
    with crewed(bench, numbers.stop + 1, contender.flow_commands(workers=1, slots=slots)) as (crew, ledger, verdict):
        _run_singly(crew, ledger, contender, range(WARM_UP_JOBS))
        time.sleep(SETTLE_SECONDS)
        meter, counted = Meter(bench, lambda: cpu_seconds(crew.pids)), Counters.read(bench.url)
        contender.enqueue_rated(numbers)
        asked = {numbers.stop: time.monotonic()}
        contender.enqueue(numbers.stop)
        _until_begun(crew, ledger, list(asked), limit=limit)
        time.sleep(seconds)
        crew.check()
        facts = {**meter.stop(), **waits(asked, ledger.begun_at)}
        facts["count"] = sum(ledger.begun_at(number) is not None for number in numbers)
    facts |= _counted(bench, counted)
    return {**facts, "rated": jobs, "rate": RATE, "limit_seconds": limit, **verdict()}


def unknown(bench: Bench, jobs: int, *, singly: int, plain: int, slots: int, limit: float) -> Facts:
    """Fill the queue with jobs of a task that its worker does not know, then enqueue plain ones, one by one.

    There are only `singly` unknown jobs if they must be enqueued one by one.
    """
    contender = bench.contender
    jobs = jobs if contender.has_bulk else singly
    numbers = range(WARM_UP_JOBS, WARM_UP_JOBS + plain)
    with crewed(bench, numbers.stop, contender.flow_commands(workers=1, slots=slots)) as (crew, ledger, verdict):
        _run_singly(crew, ledger, contender, range(WARM_UP_JOBS))
        _enqueue_unknown_apart(contender, jobs)
        time.sleep(SETTLE_SECONDS)  # the server counts what that program did when its session has ended
        meter, counted = Meter(bench, lambda: cpu_seconds(crew.pids)), Counters.read(bench.url)
        asked = _ask_singly(contender, numbers, pauses=PAUSES)
        _until_begun(crew, ledger, list(numbers), limit=limit)
        facts = {"count": plain, **meter.stop(), **waits(asked, ledger.begun_at)}
    facts |= {**_counted(bench, counted), "unknown": jobs, "fate": contender.fate_of_unknown}
    left, lost = left_of_unknown(ledger, jobs, contender.unknown(), left=contender.left())
    found = verdict()
    return {**facts, **left, "limit_seconds": limit, **found, "ledger": lost or found["ledger"]}


def waits(asked: Mapping[int, float], begun_at: Callable[[int], float | None]) -> Facts:
    """How long jobs waited from their request to their handler, sorted, and how many have not started."""
    begun = {number: begun_at(number) for number in asked}
    milliseconds = [round((at - asked[number]) * 1000, 3) for number, at in begun.items() if at is not None]
    return {"milliseconds": milliseconds, "not_begun": len(asked) - len(milliseconds)}


def left_of_unknown(ledger: Ledger, asked_for: int, found: Unknown | None, *, left: int) -> tuple[Facts, str]:
    """Report the remaining unknown jobs, and any that are missing from a store that must keep them all.

    `left` is how many jobs of any kind have not ended.
    """
    if found is None:  # it forgets jobs, or cannot tell them apart: what is left beside the plain ones is unknown
        ledger.others_left = max(0, left - (ledger.jobs - ledger.begun))
        return {"unknown_left": ledger.others_left}, ""
    ledger.others_left = found.left
    missing = asked_for - found.left - found.ended
    lost = f"{missing} of {asked_for} jobs of an unknown task are missing" if missing else ""
    return {"unknown_left": found.left, "unknown_ended": found.ended}, lost


def _warm_up(crew: Crew, ledger: Ledger, contender: Contender, *, slots: int, quick: int) -> int:
    """Let every worker run jobs that sleep, then quick ones, until none is left; returns the next job number."""
    number, deadline = 0, time.monotonic() + WARM_UP_SECONDS
    for _ in range(WARM_UP_ROUNDS):
        batch = range(number, number + WORKERS * slots)
        contender.enqueue_naps(batch)
        _until_begun(crew, ledger, list(batch), limit=WARM_UP_SECONDS)
        until_nothing_is_left(crew, contender)
        number = batch.stop
        if ledger.processes >= WORKERS:
            break
    if ledger.processes < WORKERS or time.monotonic() > deadline:
        raise CrewFailed(f"only {ledger.processes} of {WORKERS} workers ran warm-up jobs:\n{crew.log_tail()}")
    batch = range(number, number + quick)
    _ask_for(contender, batch)
    _until_begun(crew, ledger, list(batch), limit=WARM_UP_SECONDS)
    until_nothing_is_left(crew, contender)
    time.sleep(SETTLE_SECONDS)
    return batch.stop


def _run_singly(crew: Crew, ledger: Ledger, contender: Contender, numbers: Sequence[int]) -> None:
    for number in numbers:
        contender.enqueue(number)
        begin_of(crew, ledger, number)


def _ask_for(contender: Contender, numbers: Sequence[int]) -> dict[int, float]:
    """Enqueue jobs in one call, or one by one if there is no such call; returns the time of each request."""
    asked_at = time.monotonic()
    try:
        contender.enqueue_many(numbers)
    except Cannot:
        return _ask_singly(contender, numbers)
    return dict.fromkeys(numbers, asked_at)


def _ask_singly(
    contender: Contender, numbers: Sequence[int], *, pauses: tuple[float, float] | None = None
) -> dict[int, float]:
    asked = {}
    for number in numbers:
        asked[number] = time.monotonic()
        contender.enqueue(number)
        if pauses:
            time.sleep(random.uniform(*pauses))
    return asked


def _until_begun(crew: Crew, ledger: Ledger, numbers: list[int], *, limit: float) -> None:
    """Wait until all of them have started or the time is over."""
    deadline, missing = time.monotonic() + limit, numbers
    while missing and time.monotonic() < deadline:
        crew.check()
        time.sleep(POLL_SECONDS)
        missing = [number for number in missing if ledger.begun_at(number) is None]


def _until_ended(crew: Crew, ledger: Ledger, contender: Contender, longs: Sequence[int]) -> float:
    """Wait until all have ended; also wait for the long jobs, which a store may forget when they start."""
    ended_at = until_nothing_is_left(crew, contender)
    woken_at = max((ledger.begun_at(number) or 0.0) + LONG_SECONDS for number in longs)
    while time.monotonic() < woken_at:
        crew.check()
        time.sleep(POLL_SECONDS)
    return max(ended_at, woken_at)


def _enqueue_unknown_apart(contender: Contender, jobs: int) -> None:
    """Enqueue in a separate process, so that its statements are not counted with the worker's."""
    program = type(contender).__module__.rpartition(".")[2]
    words = [sys.executable, "-m", "benchmarks.kit", program, "enqueue-unknown", str(jobs)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CrewFailed(f"enqueue-unknown failed: {(done.stderr or done.stdout)[-500:]}")


def _counted(bench: Bench, earlier: Counters | None) -> Facts:
    """The server's counters since `earlier`, read after the workers have ended and reported everything."""
    later = Counters.read(bench.url)
    return {} if earlier is None or later is None else later.since(earlier)
