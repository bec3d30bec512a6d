"""`stagepost top`: watches queues and workers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click

from stagepost.cli.documents import instant, queue_document, worker_document
from stagepost.cli.invocation import Invocation
from stagepost.cli.options import Command
from stagepost.cli.queues import queue_rows
from stagepost.cli.render import Section, time_text
from stagepost.cli.workers import worker_rows
from stagepost.clock import sleep
from stagepost.model.lifecycle import JobState
from stagepost.store.activity import ended_within
from stagepost.store.health import ping
from stagepost.store.queues import Queue, list_queues
from stagepost.store.store import Store
from stagepost.store.workers import Worker, list_workers

__all__ = ["Snapshot", "top"]

WINDOW = timedelta(seconds=10)
"""Over how long rates are taken."""


@click.command(cls=Command, short_help="Watch queues, workers and rates.")
@click.option("--once", is_flag=True, help="Show how things are now, and end.")
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=2.0, show_default=True, metavar="SECONDS",
    help="How often to look.",
)  # fmt: skip
@click.pass_obj
def top(invocation: Invocation, *, once: bool, interval: float) -> None:
    """Watch queues, workers and rates. Ctrl-C ends it."""
    store, output = invocation.store, invocation.output
    before: Snapshot | None = None
    with output.screen() as show, contextlib.suppress(KeyboardInterrupt):
        while True:
            now = Snapshot.take(store, before)
            if output.as_json:
                output.document_line(now.document())
            else:
                show(now.title(), now.sections())
            if once:
                return
            before = now
            sleep(interval)


@dataclass(frozen=True)
class Snapshot:
    """How things were at one moment."""

    at: int
    queues: list[Queue]
    workers: list[Worker]
    ended: Mapping[JobState, int]
    """Within WINDOW, by state."""
    arrived_per_second: float | None
    """Since the snapshot before, if there is one."""

    @classmethod
    def take(cls, store: Store, before: Snapshot | None) -> Snapshot:
        """Look at the database now."""
        at, queues = store.run(ping()), store.run(list_queues())
        return cls(
            at=at,
            queues=queues,
            workers=store.run(list_workers()),
            ended=store.run(ended_within(WINDOW)),
            arrived_per_second=None if before is None else _arrived(store, before, at=at, live=_live(queues)),
        )

    def ended_per_second(self) -> dict[JobState, float]:
        """How many jobs ended per second lately, by state."""
        return {state: round(number / WINDOW.total_seconds(), 1) for state, number in self.ended.items()}

    def title(self) -> str:
        """Say the most important in one line."""
        rates = self.ended_per_second()
        dead = rates[JobState.DEAD_LETTER] + rates[JobState.FAILED]
        came = "" if self.arrived_per_second is None else f"{self.arrived_per_second:,.1f} came, "
        return (
            f"{time_text(self.at)}  {_live(self.queues):,} live jobs; per second: {came}"
            f"{rates[JobState.COMPLETED]:,.1f} completed, {dead:,.1f} failed for good"
        )

    def sections(self) -> list[Section]:
        """Set the rest in tables."""
        return [queue_rows(self.queues), worker_rows(self.workers)]

    def document(self) -> dict[str, Any]:
        """Describe it as JSON."""
        return {
            "at": instant(self.at),
            "live": _live(self.queues),
            "arrived_per_second": self.arrived_per_second,
            "ended_per_second": {str(state): rate for state, rate in self.ended_per_second().items()},
            "queues": [queue_document(queue) for queue in self.queues],
            "workers": [worker_document(worker) for worker in self.workers],
        }


def _live(queues: list[Queue]) -> int:
    """Count the jobs that have not ended."""
    return sum(sum(queue.counts.values()) for queue in queues)


def _arrived(store: Store, before: Snapshot, *, at: int, live: int) -> float | None:
    """Reckon how many jobs came per second: those that ended, and those there are more."""
    since = timedelta(microseconds=at - before.at)
    if since <= timedelta(0):
        return None
    ended = sum(store.run(ended_within(since)).values())
    return round(max(0, live - _live(before.queues) + ended) / since.total_seconds(), 1)
