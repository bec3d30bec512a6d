"""What the tables of a report show, and how each number is read from a sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import end_rates, per_job, percentile, rate

__all__ = ["NOTHING", "TABLES", "Column", "Facts", "Ratio", "Table", "Text"]

Facts = Mapping[str, Any]

NOTHING = "—"
NOT_OFFERED = "not offered"


@dataclass(frozen=True)
class Column:
    """One number per contender: the figure it is taken from, how to read it from a sample, how to write it."""

    title: str
    figure: str
    read: Callable[[Facts], float | None]
    form: str = "{:,.0f}"
    is_context: bool = False
    """Whether the column is only for comparison: it alone does not make a row appear."""
    without: str = NOTHING
    """What is shown for a contender that cannot do it."""


@dataclass(frozen=True)
class Ratio:
    """One column divided by another one of the same contender."""

    title: str
    over: Column
    under: Column
    form: str = "{:.1f}"
    is_context: bool = False

    @property
    def figure(self) -> str:
        """The figure whose presence decides whether it is shown."""
        return self.over.figure


@dataclass(frozen=True)
class Text:
    """A few words per contender."""

    title: str
    figure: str
    key: str
    is_context: bool = False


@dataclass(frozen=True)
class Table:
    """Columns that are read together."""

    title: str
    note: str
    columns: tuple[Column | Ratio | Text, ...]

    @property
    def numbers(self) -> tuple[Column, ...]:
        """The columns that are read from samples as numbers."""
        return tuple(column for column in self.columns if isinstance(column, Column))


def _cpu(key: str) -> Callable[[Facts], float | None]:
    return lambda facts: per_job(facts, key)


def _milliseconds(share: float) -> Callable[[Facts], float | None]:
    return lambda facts: percentile(facts["milliseconds"], share) if facts.get("milliseconds") else None


def _share_of_a_core(key: str) -> Callable[[Facts], float | None]:
    return lambda facts: None if facts.get(key) is None else facts[key] / facts["seconds"] * 100


def _end_rate(which: int) -> Callable[[Facts], float | None]:
    def read(facts: Facts) -> float | None:
        rates = end_rates(facts.get("curve", ()))
        return None if rates is None else rates[which]

    return read


def _wait(share: float) -> Callable[[Facts], float | None]:
    """A percentile of waits; infinite if that job had not started when the time was over."""

    def read(facts: Facts) -> float | None:
        known = facts.get("milliseconds")
        return None if known is None else percentile([*known, *[math.inf] * facts.get("not_begun", 0)], share)

    return read


def _whole_cpu(facts: Facts) -> float | None:
    """CPU time per job of workers, server and broker together."""
    keys = ("worker_cpu_seconds", "server_cpu_seconds", "broker_cpu_seconds")
    return sum(per_job(facts, key) or 0.0 for key in keys) or None


def _per_second(key: str) -> Callable[[Facts], float | None]:
    return lambda facts: None if facts.get(key) is None else facts[key] / facts["seconds"]


def _speed(title: str, figure: str, user: str) -> tuple[Column, Column, Column]:
    return (
        Column(f"{title}, jobs/s", figure, rate),
        Column(f"{user} µs", figure, _cpu("worker_cpu_seconds")),
        Column("server µs", figure, _cpu("server_cpu_seconds")),
    )


def _broker(title: str, figure: str) -> Column:
    return Column(f"{title}, broker µs", figure, _cpu("broker_cpu_seconds"))


MIXED_P99 = Column("p99, ms", "mixed", _wait(0.99), "{:,.1f}")
NO_PREFETCH_P99 = Column("no prefetch, p99", "mixed_no_prefetch", _wait(0.99), "{:,.1f}")
PLAIN_CPU = Column("µs", "keys_plain", _whole_cpu, without=NOT_OFFERED)
KEYS_CPU = Column("µs", "keys", _whole_cpu, without=NOT_OFFERED)
KEYS_EACH_CPU = Column("µs", "keys_each", _whole_cpu, without=NOT_OFFERED)

TABLES: tuple[Table, ...] = (
    Table(
        "Enqueue",
        "One client; each call returns when the job is stored for good. µs are CPU time per job.",
        (*_speed("one by one", "enqueue_one", "client"), *_speed("in bulk", "enqueue_bulk", "client")),
    ),
    Table(
        "Drain",
        "Jobs that do nothing, until the store has them as ended. µs are CPU time per job.",
        (*_speed("one process", "drain_1", "worker"), *_speed("two processes", "drain_2", "worker")),
    ),
    Table(
        "A broker beside the database",
        "What it costs above, where the database keeps the jobs and the broker carries them; and jobs that are stored "
        "and not sent, until they are ended, by one process that sends, takes and runs them.",
        (
            _broker("one by one", "enqueue_one"),
            _broker("in bulk", "enqueue_bulk"),
            _broker("drain", "drain_1"),
            Column("stored to ended, jobs/s", "through", rate),
            Column("worker µs", "through", _cpu("worker_cpu_seconds")),
            Column("server µs", "through", _cpu("server_cpu_seconds")),
            _broker("stored to ended", "through"),
        ),
    ),
    Table(
        "Latency, sleeping jobs, idling",
        "From the request to the handler on an idle worker; 1,000 jobs that sleep 100 ms at concurrency 100, ideal "
        "time / time; a worker with nothing to do, in memory of its own and per cent of a core.",
        (
            Column("p50, ms", "latency", _milliseconds(0.50), "{:,.1f}"),
            Column("p99, ms", "latency", _milliseconds(0.99), "{:,.1f}"),
            Column("sleep efficiency", "sleep", lambda facts: facts["efficiency"], "{:.0%}"),
            Column("idle MB", "idle", lambda facts: facts["memory_bytes"] / 1e6),
            Column("idle worker CPU, %", "idle", _share_of_a_core("worker_cpu_seconds"), "{:.2f}"),
            Column("idle server CPU, %", "idle", _share_of_a_core("server_cpu_seconds"), "{:.2f}"),
        ),
    ),
    Table(
        "Growth",
        "Jobs/s of one process: behind a small and a large backlog, with a long history, and in the first and last "
        "tenth of a drain during which another session holds a transaction open.",
        (
            Column("small backlog", "backlog_small", rate),
            Column("large backlog", "backlog_large", rate),
            Column("empty history", "drain_1", rate, is_context=True),
            Column("long history", "history", rate),
            Column("held open, first", "held", _end_rate(0)),
            Column("held open, last", "held", _end_rate(1)),
            Column("held open, server µs", "held", _cpu("server_cpu_seconds")),
        ),
    ),
    Table(
        "Quick jobs behind long ones",
        "Two workers, as many long jobs as one of them has slots, then quick jobs: how long these wait from their "
        "request to their handler, and until all have ended. With each product's own prefetch, and Stagepost also "
        "without; the ratio is the p99 of the former / the latter.",
        (
            Column("p50, ms", "mixed", _wait(0.50), "{:,.1f}"),
            MIXED_P99,
            Column("all ended, s", "mixed", lambda facts: facts["seconds"], "{:,.2f}"),
            Column("no prefetch, p50", "mixed_no_prefetch", _wait(0.50), "{:,.1f}"),
            NO_PREFETCH_P99,
            Ratio("ratio", MIXED_P99, NO_PREFETCH_P99),
        ),
    ),
    Table(
        "At most one running job per key",
        "A drain by one process of jobs without limits, of jobs that share keys, and of jobs with a key each. µs are "
        "CPU time per job of worker, server and broker together; ratios are to the drain without limits.",
        (
            Column("plain, jobs/s", "keys_plain", rate, without=NOT_OFFERED),
            PLAIN_CPU,
            Column("shared keys, jobs/s", "keys", rate, without=NOT_OFFERED),
            KEYS_CPU,
            Ratio("µs, ratio", KEYS_CPU, PLAIN_CPU),
            Column("a key each, jobs/s", "keys_each", rate, without=NOT_OFFERED),
            KEYS_EACH_CPU,
            Ratio("µs, ratio", KEYS_EACH_CPU, PLAIN_CPU),
        ),
    ),
    Table(
        "Behind jobs of a rate-limited task",
        "Jobs of a task with a rate limit of 2/s, then one plain job of the same queue: its wait, and what one worker "
        "does until some seconds later. Transactions are PostgreSQL's own count.",
        (
            Column("wait, ms", "rated", _wait(0.50), "{:,.1f}", without=NOT_OFFERED),
            Column("rated jobs/s", "rated", rate, "{:.1f}", without=NOT_OFFERED),
            Column("transactions/s", "rated", _per_second("transactions"), "{:,.1f}"),
            Column("worker CPU, %", "rated", _share_of_a_core("worker_cpu_seconds"), "{:.1f}"),
            Column("server CPU, %", "rated", _share_of_a_core("server_cpu_seconds"), "{:.1f}"),
        ),
    ),
    Table(
        "Behind jobs of an unknown task",
        "Jobs of a task that no worker knows, then plain jobs of the same queue, one by one: their wait, and per plain "
        "job the time that PostgreSQL spent in statements and the server's CPU time. What becomes of the unknown ones, "
        "and how many are left in the queue.",
        (
            Column("unknown jobs", "unknown", lambda facts: facts["unknown"]),
            Text("what becomes of them", "unknown", "fate"),
            Column("left", "unknown", lambda facts: facts["unknown_left"]),
            Column("p50, ms", "unknown", _wait(0.50), "{:,.1f}"),
            Column("p99, ms", "unknown", _wait(0.99), "{:,.1f}"),
            Column("statements, µs", "unknown", _cpu("statement_seconds")),
            Column("server µs", "unknown", _cpu("server_cpu_seconds")),
        ),
    ),
)
