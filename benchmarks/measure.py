"""Measures figures: contenders take turns in every round, each in a separate database."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import psycopg

from benchmarks import flow
from benchmarks.catalogue import Entry
from benchmarks.contestant import QUICK, CallFailed, Cannot, Contestant, Facts, Figure, Figures, Sizes
from tests.services.mariadb import connect

__all__ = [
    "FIGURES", "QUICK", "CallFailed", "Cannot", "Contestant", "Facts", "Sizes", "Turn", "end_rates", "held_open",
    "is_settled", "middle", "per_job", "percentile", "rate", "turns", "visit",
]  # fmt: skip

HISTORY_SEED = 1000
END_SHARE = 0.1
"""The share of a drain that counts as its beginning, and as its end."""


def _enqueue(contestant: Contestant) -> Figures:
    jobs = contestant.sizes.singles
    enqueued = contestant.call("enqueue-one", jobs)
    yield "enqueue_one", {**enqueued, **_checked(contestant.call("drain", jobs, "--processes", 2))}


def _drain(contestant: Contestant, processes: int) -> Figures:
    jobs = contestant.sizes.jobs
    try:
        enqueued = contestant.call("enqueue-bulk", jobs)
    except Cannot as reason:
        yield "enqueue_bulk", {"cannot": str(reason)}
        contestant.call("enqueue-one", jobs)
        yield f"drain_{processes}", contestant.call("drain", jobs, "--processes", processes)
        return
    drained = contestant.call("drain", jobs, "--processes", processes)
    yield "enqueue_bulk", {**enqueued, **_checked(drained)}
    yield f"drain_{processes}", drained


def _drain_with_one(contestant: Contestant) -> Figures:
    return _drain(contestant, 1)


def _drain_with_two(contestant: Contestant) -> Figures:
    return _drain(contestant, 2)


def _through(contestant: Contestant) -> Figures:
    """Drain jobs that are stored but not sent: one process sends, receives and runs them."""
    if not contestant.entry.broker:
        raise Cannot("nothing lies between its jobs and its workers")
    jobs = contestant.sizes.jobs
    contestant.call("enqueue-bulk", jobs, "--unsent")
    yield "through", contestant.call("drain", jobs)


def _latency(contestant: Contestant) -> Figures:
    yield "latency", contestant.call("latency", contestant.sizes.samples)


def _sleep(contestant: Contestant) -> Figures:
    concurrency = contestant.sizes.nap_concurrency
    yield "sleep", contestant.call("sleep", contestant.sizes.naps, "--concurrency", concurrency)


def _idle(contestant: Contestant) -> Figures:
    yield "idle", contestant.call("idle", contestant.sizes.idle_seconds)


def _small_backlog(contestant: Contestant) -> Figures:
    sizes = contestant.sizes
    contestant.fill(sizes.small_backlog)
    yield "backlog_small", contestant.call("drain", sizes.small_backlog, "--stop-after", sizes.backlog_jobs)


def _large_backlog(contestant: Contestant) -> Figures:
    sizes = contestant.sizes
    contestant.call("enqueue-bulk", sizes.large_backlog)
    yield "backlog_large", contestant.call("drain", sizes.large_backlog, "--stop-after", sizes.backlog_jobs)


def _history(contestant: Contestant) -> Figures:
    contestant.call("fill-history", 0)  # says at once whether it keeps any
    contestant.fill(HISTORY_SEED)
    contestant.call("drain", HISTORY_SEED)
    filled = contestant.call("fill-history", contestant.sizes.history)
    contestant.fill(contestant.sizes.jobs)
    yield "history", {**contestant.call("drain", contestant.sizes.jobs), **filled}


def _held(contestant: Contestant) -> Figures:
    sizes = contestant.sizes
    if contestant.entry.service not in HOLDERS:
        raise Cannot("its broker has no transactions to hold open")
    contestant.fill(sizes.held_jobs)
    with held_open(contestant.entry.service, contestant.address.url):
        yield "held", contestant.call("drain", sizes.held_jobs, "--seconds", sizes.held_seconds)


FIGURES: dict[str, tuple[Figure, ...]] = {
    "enqueue": (Figure(("enqueue_one",), _enqueue),),
    "drain": (
        Figure(("enqueue_bulk", "drain_1"), _drain_with_one),
        Figure(("enqueue_bulk", "drain_2"), _drain_with_two),
    ),
    "through": (Figure(("through",), _through),),
    "latency": (Figure(("latency",), _latency),),
    "sleep": (Figure(("sleep",), _sleep),),
    "idle": (Figure(("idle",), _idle),),
    "backlog": (
        Figure(("backlog_small",), _small_backlog),
        Figure(("backlog_large",), _large_backlog),
    ),
    "history": (Figure(("history",), _history),),
    "held": (Figure(("held",), _held),),
    **flow.FIGURES,
}
"""By the name that `--figures` takes; each visit has a separate database."""


@dataclass(frozen=True)
class Turn:
    """One contender's visit in one round."""

    round: int
    figure: Figure
    entry: Entry


def _always(_turn: Turn) -> bool:
    return True


def turns(
    entries: Sequence[Entry], figures: Sequence[str], rounds: int, *, takes_part: Callable[[Turn], bool] = _always
) -> Iterator[Turn]:
    """Let every contender measure a figure before the next figure; each round starts with another contender."""
    for number in range(rounds):
        shift = number % max(len(entries), 1)
        order = [*entries[shift:], *entries[:shift]]
        for name in figures:
            for figure in FIGURES[name]:
                yield from filter(takes_part, (Turn(number, figure, entry) for entry in order))


def is_settled(turn: Turn, samples: Iterable[Facts]) -> bool:
    """Whether an earlier visit of the round has shown that this one cannot be measured."""
    settled = {
        sample["figure"]
        for sample in samples
        if sample["contender"] == turn.entry.name
        and sample["round"] == turn.round
        and ("cannot" in sample or "error" in sample)
    }
    return settled.issuperset(turn.figure.keys)


def visit(turn: Turn, figures: Callable[[], Figures]) -> list[Facts]:
    """Collect the samples of one visit; an error is a sample, too."""
    label = {"contender": turn.entry.name, "round": turn.round}
    samples: list[Facts] = []
    try:
        for key, facts in figures():
            samples.append({**label, "figure": key, **facts})
    except Cannot as reason:
        trouble = {"cannot": str(reason)}
    except (CallFailed, OSError, RuntimeError) as error:
        trouble = {"error": str(error)}
    else:
        return samples
    missing = [key for key in turn.figure.keys if key not in {sample["figure"] for sample in samples}]
    return samples + [{**label, "figure": key, **trouble} for key in missing]


@contextlib.contextmanager
def held_open(service: str, url: str) -> Iterator[None]:
    """Keep a transaction with a snapshot open, as a forgotten session or a long report does."""
    with contextlib.closing(HOLDERS[service](url)):
        yield


def _hold_postgres(url: str) -> Any:
    connection = psycopg.connect(url)
    connection.execute("set transaction isolation level repeatable read")
    connection.execute("select count(*) from pg_class")
    return connection


def _hold_mariadb(url: str) -> Any:
    connection = connect(url)
    with connection.cursor() as cursor:
        cursor.execute("start transaction with consistent snapshot")
    return connection


def _hold_sqlite(url: str) -> Any:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("begin")
    connection.execute("select count(*) from sqlite_master").fetchone()
    return connection


HOLDERS: Mapping[str, Callable[[str], Any]] = {
    "postgres": _hold_postgres,
    "mariadb": _hold_mariadb,
    "sqlite": _hold_sqlite,
}


def rate(facts: Mapping[str, Any]) -> float | None:
    """Jobs per second; None if nothing was timed."""
    return facts["count"] / facts["seconds"] if facts.get("count") and facts.get("seconds") else None


def per_job(facts: Mapping[str, Any], key: str) -> float | None:
    """Microseconds per job of a CPU time; None if it was not measured."""
    seconds = facts.get(key)
    return None if seconds is None or not facts.get("count") else seconds / facts["count"] * 1e6


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def end_rates(curve: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Jobs per second in the first and in the last tenth of a drain's time; None if it was too short to tell."""
    if len(curve) < 3:
        return None
    span = (curve[-1][0] - curve[0][0]) * END_SHARE
    first = next(point for point in curve[1:] if point[0] - curve[0][0] >= span)
    last = next(point for point in reversed(curve[:-1]) if curve[-1][0] - point[0] >= span)
    return _slope(curve[0], first), _slope(last, curve[-1])


def middle(values: Iterable[float | None]) -> float | None:
    """The median of the values that were measured."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _slope(earlier: Sequence[float], later: Sequence[float]) -> float:
    return (later[1] - earlier[1]) / (later[0] - earlier[0])


def _checked(drained: Facts) -> Facts:
    return {key: drained[key] for key in ("ledger", "workers_killed")}
