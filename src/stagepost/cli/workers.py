"""`stagepost workers`: lists running workers."""

from __future__ import annotations

import click

from stagepost.cli.documents import worker_document
from stagepost.cli.invocation import Invocation
from stagepost.cli.options import Group
from stagepost.cli.render import Section, duration_text
from stagepost.model.job import microseconds
from stagepost.store.workers import ALIVE_WITHIN, WorkerRecord, list_workers

__all__ = ["worker_rows", "workers"]


@click.group(cls=Group)
def workers() -> None:
    """List running workers."""


@workers.command("list")
@click.pass_obj
def list_all(invocation: Invocation) -> None:
    """List workers and their last reports, newest first."""
    found = invocation.store.run(list_workers())
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
