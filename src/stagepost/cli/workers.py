"""`stagepost workers`: lists running workers and their loops."""

from __future__ import annotations

from typing import Any

import click

from stagepost.cli.documents import worker_document
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, duration_text
from stagepost.cli.options import Group
from stagepost.model.job import microseconds
from stagepost.store.leaders import Leadership, list_leaders
from stagepost.store.workers import ALIVE_WITHIN, WorkerRecord, list_workers
from stagepost.worker.loop import Loop
from stagepost.worker.loop_table import LOOPS

__all__ = ["worker_rows", "workers"]


@click.group(cls=Group)
def workers() -> None:
    """List running workers."""


@workers.command("list")
@click.option("--loops", "shows_loops", is_flag=True, help="List the loops that each worker runs.")
@click.pass_obj
def list_all(invocation: Invocation, *, shows_loops: bool) -> None:
    """List workers and their last reports, newest first."""
    found = invocation.store.run(list_workers())
    if shows_loops:
        leaders = invocation.store.run(list_leaders())
        documents = [worker_document(worker) | {"loops": _loop_documents(worker, leaders)} for worker in found]
        invocation.output.result({"workers": documents}, lambda: invocation.output.table(_loop_rows(found, leaders)))
        return
    document = {"workers": [worker_document(worker) for worker in found]}
    invocation.output.result(document, lambda: invocation.output.table(worker_rows(found)))


def worker_rows(found: list[WorkerRecord]) -> Section:
    """Lay out workers as a table."""
    return Section(
        title="Workers",
        columns=("worker", "host", "pid", "queues", "running", "slots", "up", "last heard", "state"),
        rows=[
            (
                worker.id,
                worker.host,
                str(worker.pid),
                ", ".join(worker.queues),
                worker.running,
                worker.slots,
                duration_text(worker.seen_at + worker.silent_us - worker.started_at),
                f"{duration_text(worker.silent_us)} ago",
                "alive" if worker.silent_us <= microseconds(ALIVE_WITHIN) else "silent, probably dead",
            )
            for worker in found
        ],
        numbers=frozenset({"pid", "running", "slots", "up", "last heard"}),
        empty="No worker is running. Start one with `stagepost worker`.",
    )


def _loop_rows(found: list[WorkerRecord], leaders: list[Leadership]) -> Section:
    return Section(
        title="Loops",
        columns=("worker", "loop", "state", "interval", "what it does"),
        rows=[
            (worker.id, loop.name, _state(loop, worker, leaders), loop.interval, loop.purpose)
            for worker in found
            for loop in _loops_of(worker)
        ],
        empty="No worker is running. Start one with `stagepost worker`.",
    )


def _loop_documents(worker: WorkerRecord, leaders: list[Leadership]) -> list[dict[str, Any]]:
    return [
        {
            "name": loop.name,
            "class": loop.service.__name__,
            "purpose": loop.purpose,
            "runs_on": str(loop.runs_on),
            "interval": loop.interval,
            "state": _state(loop, worker, leaders),
        }
        for loop in _loops_of(worker)
    ]


def _loops_of(worker: WorkerRecord) -> list[Loop[Any]]:
    return [loop for loop in LOOPS if loop.name in worker.loops]


def _state(loop: Loop[Any], worker: WorkerRecord, leaders: list[Leadership]) -> str:
    """Say whether the loop works here, or waits for this worker to become the leader."""
    leadership = loop.runs_on.leadership
    is_active = leadership is None or any(held.name == leadership and held.owner == worker.id for held in leaders)
    return "active" if is_active else "standby"
