"""`stagepost reconcile`: checks once for lost messages and explains the result for every queue."""

from __future__ import annotations

import click

from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section
from stagepost.cli.options import Command
from stagepost.operations import reconcile as check_once

__all__ = ["reconcile"]


@click.command(cls=Command, short_help="Find lost broker messages and send them again.")
@click.option("--dry-run", "only_looks", is_flag=True, help="Only show what would be sent again.")
@click.pass_obj
def reconcile(invocation: Invocation, *, only_looks: bool) -> None:
    """Find jobs whose broker message was lost, mark them to be sent again, and explain the result for each queue.

    Workers do this continuously. A message counts as lost when its queue has been empty, with no message taken from
    it, for some time. The first check of a queue may therefore be inconclusive: run the command again.
    """
    found = check_once(invocation.operator, dry_run=only_looks)
    title = "lost" if only_looks else "sent again"
    section = Section(
        columns=("queue", "waiting at the broker", title, "why"),
        rows=[(one.queue, one.ready, one.lost, one.why) for one in found],
        numbers=frozenset({"waiting at the broker", title}),
        empty="No carried queue has jobs.",
    )
    document = {"dry_run": only_looks, "queues": found}
    invocation.output.result(document, lambda: invocation.output.table(section))
