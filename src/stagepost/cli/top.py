"""`stagepost top`: watches queues and workers."""

from __future__ import annotations

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


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="Show how things are now, and end.")
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=2.0, show_default=True, metavar="SECONDS",
    help="How often to look.",
)  # fmt: skip
@click.pass_obj
def top(invocation: Invocation, *, once: bool, interval: float) -> None:
    """Watch queues, workers and rates. Ctrl-C ends it.

    It counts all live jobs each time it looks: with millions of them, look less often.
    """
    store, output = invocation.store, invocation.output
    with output.screen() as show:
        before: Snapshot | None = None
        while True:
            now = Snapshot.take(store)
            if output.as_json:
                output.document_line(now.document(before))
            else:
                show(now.title(before), now.sections())
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
    ended: dict[JobState, int]
    """Within WINDOW, by state."""

    @classmethod
    def take(cls, store: Store) -> Snapshot:
        """Look at the database now."""
        ended = store.run(ended_within(WINDOW))
        return cls(
            at=store.run(ping()),
            queues=store.run(list_queues()),
            workers=store.run(list_workers()),
            ended=dict(ended),
        )

    @property
    def live(self) -> int:
        """How many jobs have not ended."""
        return sum(sum(queue.counts.values()) for queue in self.queues)

    def ended_per_second(self) -> dict[JobState, float]:
        """How many jobs ended per second lately, by state."""
        return {state: round(number / WINDOW.total_seconds(), 1) for state, number in self.ended.items()}

    def arrived_per_second(self, before: Snapshot | None) -> float | None:
        """How many jobs came per second since the snapshot before: those that ended, and those there are more."""
        if before is None or self.at <= before.at:
            return None
        seconds = (self.at - before.at) / 1_000_000
        return round(max(0.0, (self.live - before.live) / seconds + sum(self.ended_per_second().values())), 1)

    def title(self, before: Snapshot | None) -> str:
        """Say the most important in one line."""
        rates = self.ended_per_second()
        dead = rates[JobState.DEAD_LETTER] + rates[JobState.FAILED]
        arrived = self.arrived_per_second(before)
        came = "" if arrived is None else f"{arrived:,.1f} came, "
        return (
            f"{time_text(self.at)}  {self.live:,} live jobs; per second: {came}"
            f"{rates[JobState.COMPLETED]:,.1f} completed, {dead:,.1f} failed for good"
        )

    def sections(self) -> list[Section]:
        """Set the rest in tables."""
        return [queue_rows(self.queues), worker_rows(self.workers)]

    def document(self, before: Snapshot | None) -> dict[str, Any]:
        """Describe it as JSON."""
        return {
            "at": instant(self.at),
            "live": self.live,
            "arrived_per_second": self.arrived_per_second(before),
            "ended_per_second": {str(state): rate for state, rate in self.ended_per_second().items()},
            "queues": [queue_document(queue) for queue in self.queues],
            "workers": [worker_document(worker) for worker in self.workers],
        }
