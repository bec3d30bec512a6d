"""`stagepost top`: shows queues, workers and the broker live."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import click

from stagepost.cli.documents import instant, queue_document, worker_document
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, duration_text, time_text
from stagepost.cli.options import Command
from stagepost.cli.queues import queue_rows
from stagepost.cli.workers import worker_rows
from stagepost.client.app import App
from stagepost.client.broker_view import MOST_COUNTED, AskInBackground, BrokerView, query_broker
from stagepost.clock import sleep
from stagepost.model.lifecycle import JobState
from stagepost.operations import Queue, RegisteredWorker

__all__ = ["Snapshot", "top"]

WINDOW = timedelta(seconds=10)
"""The period over which rates are averaged."""
PATIENCE_SECONDS = 5.0
"""How long to wait for the broker's answer; with repeated refreshes, at most one interval."""


@click.command(cls=Command, short_help="Show queues, workers and rates live.")
@click.option("--once", is_flag=True, help="Print the current state once and exit.")
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=2.0, show_default=True, metavar="SECONDS",
    help="Time between refreshes.",
)  # fmt: skip
@click.pass_obj
def top(invocation: Invocation, *, once: bool, interval: float) -> None:
    """Show queues, workers and rates live until you press Ctrl-C."""
    app, output = invocation.operator, invocation.output
    before: Snapshot | None = None
    known = app.registry.queues
    ask = AskInBackground(seconds=PATIENCE_SECONDS if once else min(interval, PATIENCE_SECONDS))
    with output.screen() as show, contextlib.suppress(KeyboardInterrupt):
        while True:
            broker = query_broker(app.store, invocation.settings, known=known, ask=ask)
            now = Snapshot.take(app, before, at=invocation.now(), broker=broker)
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
    """The state of queues, workers and broker at one moment."""

    at: datetime
    queues: Sequence[Queue]
    workers: Sequence[RegisteredWorker]
    ended: Mapping[JobState, int]
    """Jobs that ended within WINDOW, by state."""
    arrived_per_second: float | None
    """Rate since the previous snapshot; None for the first one."""
    broker: BrokerView | None = None

    @classmethod
    def take(cls, app: App, before: Snapshot | None, *, at: datetime, broker: BrokerView | None = None) -> Snapshot:
        """Read the current state from the database."""
        queues = app.queues.list()
        return cls(
            at=at,
            queues=queues,
            workers=app.workers.list(),
            ended=app.jobs.ended(WINDOW),
            arrived_per_second=None if before is None else _arrived(app, before, at=at, live=_live(queues)),
            broker=broker,
        )

    def ended_per_second(self) -> dict[JobState, float]:
        """Jobs that ended per second within WINDOW, by state."""
        return {state: round(number / WINDOW.total_seconds(), 1) for state, number in self.ended.items()}

    def title(self) -> str:
        """Summarize the snapshot in one line."""
        rates = self.ended_per_second()
        dead = rates[JobState.DEAD_LETTER] + rates[JobState.FAILED]
        came = "" if self.arrived_per_second is None else f"{self.arrived_per_second:,.1f} arrived, "
        return (
            f"{time_text(self.at)}  {_live(self.queues):,} live jobs; per second: {came}"
            f"{rates[JobState.COMPLETED]:,.1f} completed, {dead:,.1f} failed permanently"
        )

    def sections(self) -> list[Section]:
        """Lay out queues, workers and broker as tables."""
        return [
            queue_rows(self.queues),
            worker_rows(self.workers),
            *([broker_rows(self.broker)] if self.broker is not None else ()),
        ]

    def document(self) -> dict[str, Any]:
        """Convert the snapshot to a JSON document."""
        return {
            "at": instant(self.at),
            "live": _live(self.queues),
            "arrived_per_second": self.arrived_per_second,
            "ended_per_second": {str(state): rate for state, rate in self.ended_per_second().items()},
            "queues": [queue_document(queue) for queue in self.queues],
            "workers": [worker_document(worker) for worker in self.workers],
            "broker": None if self.broker is None else broker_document(self.broker),
        }


def broker_rows(view: BrokerView) -> Section:
    """List jobs and messages waiting in each carried queue, under a title that shows any trouble with the broker."""
    trouble = "" if view.trouble is None else f"CANNOT BE USED: {view.trouble}. Jobs wait in the database. "
    dead = "unknown" if view.dead_letters is None else f"{view.dead_letters:,}"
    return Section(
        title=f"RabbitMQ at {view.address}: {trouble}{dead} messages in {view.dead_letter_queue}, "
        f"{view.dead_messages:,} dead messages stored",
        columns=("queue", "unsent", "longest", "at the broker", "consumers"),
        rows=[
            (
                queue.broker_name,
                f"{queue.unsent:,}{'+' if queue.unsent >= MOST_COUNTED else ''}",
                None if queue.waits_us is None else duration_text(queue.waits_us),
                queue.ready,
                queue.consumers,
            )
            for queue in view.queues
        ],
        numbers=frozenset({"unsent", "longest", "at the broker", "consumers"}),
        empty="No carried queue has jobs.",
    )


def broker_document(view: BrokerView) -> dict[str, Any]:
    """Convert the broker's state to a JSON document."""
    return {
        "address": view.address,
        "trouble": view.trouble,
        "unsent": view.unsent,
        "longest_seconds": None if view.waits_us is None else view.waits_us / 1_000_000,
        "dead_letters": view.dead_letters,
        "dead_messages": view.dead_messages,
        "queues": [
            {
                "name": queue.name,
                "broker_name": queue.broker_name,
                "unsent": queue.unsent,
                "longest_seconds": None if queue.waits_us is None else queue.waits_us / 1_000_000,
                "ready": queue.ready,
                "consumers": queue.consumers,
            }
            for queue in view.queues
        ],
    }


def _live(queues: Sequence[Queue]) -> int:
    """Count jobs that have not ended."""
    return sum(sum(queue.jobs.values()) for queue in queues)


def _arrived(app: App, before: Snapshot, *, at: datetime, live: int) -> float | None:
    """Estimate how many jobs arrived per second: jobs that ended plus the growth in live jobs."""
    since = at - before.at
    if since <= timedelta(0):
        return None
    ended = sum(app.jobs.ended(since).values())
    return round(max(0, live - _live(before.queues) + ended) / since.total_seconds(), 1)
