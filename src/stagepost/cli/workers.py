"""`stagepost workers`: lists running workers and their loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from stagepost.cli.documents import worker_document
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, duration_text
from stagepost.cli.options import Group
from stagepost.model.job import microseconds
from stagepost.operations import RegisteredWorker
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
    found = invocation.operator.workers.list()
    if shows_loops:
        documents = [worker_document(worker) | {"loops": _loop_documents(worker)} for worker in found]
        invocation.output.result({"workers": documents}, lambda: invocation.output.table(_loop_rows(found)))
        return
    document = {"workers": [worker_document(worker) for worker in found]}
    invocation.output.result(document, lambda: invocation.output.table(worker_rows(found)))


def worker_rows(found: Sequence[RegisteredWorker]) -> Section:
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
                duration_text(microseconds(worker.seen_at + worker.silent - worker.started_at)),
                f"{duration_text(microseconds(worker.silent))} ago",
                "alive" if worker.is_alive else "silent, probably dead",
            )
            for worker in found
        ],
        numbers=frozenset({"pid", "running", "slots", "up", "last heard"}),
        empty="No worker is running. Start one with `stagepost worker`.",
    )


def _loop_rows(found: Sequence[RegisteredWorker]) -> Section:
    return Section(
        title="Loops",
        columns=("worker", "loop", "state", "interval", "what it does"),
        rows=[
            (worker.id, loop.name, _state(loop, worker), loop.interval, loop.purpose)
            for worker in found
            for loop in _loops_of(worker)
        ],
        empty="No worker is running. Start one with `stagepost worker`.",
    )


def _loop_documents(worker: RegisteredWorker) -> list[dict[str, Any]]:
    return [
        {
            "name": loop.name,
            "class": loop.service.__name__,
            "purpose": loop.purpose,
            "runs_on": str(loop.runs_on),
            "interval": loop.interval,
            "state": _state(loop, worker),
        }
        for loop in _loops_of(worker)
    ]


def _loops_of(worker: RegisteredWorker) -> list[Loop[Any]]:
    return [loop for loop in LOOPS if loop.name in worker.loops]


def _state(loop: Loop[Any], worker: RegisteredWorker) -> str:
    """Say whether the loop works here, or waits for this worker to become the leader."""
    leadership = loop.runs_on.leadership
    return "active" if leadership is None or leadership in worker.leads else "standby"
