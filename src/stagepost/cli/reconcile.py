"""`stagepost reconcile`: checks once for lost messages and explains the result for every queue."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section, duration_text
from stagepost.cli.options import Command
from stagepost.cli.rabbitmq import broker_url
from stagepost.client.broker_view import carried_queues, query_broker
from stagepost.clock import SystemClock
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.errors import BrokerUnavailable
from stagepost.loops.signals import Signals
from stagepost.model.identity import new_id
from stagepost.upkeep.alerting import AlertingRunner
from stagepost.upkeep.leader import TERM, Leader
from stagepost.upkeep.reconciler import Finding, QueueCheck, Reconciler

__all__ = ["reconcile"]


@click.command(cls=Command, short_help="Find lost broker messages and send them again.")
@click.option("--dry-run", "only_looks", is_flag=True, help="Only show what would be sent again.")
@click.pass_obj
def reconcile(invocation: Invocation, *, only_looks: bool) -> None:
    """Find jobs whose broker message was lost, mark them to be sent again, and explain the result for each queue.

    Workers do this continuously. A message counts as lost when its queue has been empty, with no message taken from
    it, for some time. The first check of a queue may therefore be inconclusive: run the command again.
    """
    url, settings = broker_url(invocation), invocation.settings
    known = invocation.app.registry.queues if invocation.has_app else ()
    view = query_broker(invocation.store, settings, known=known)
    if view is not None and view.trouble is not None:
        raise BrokerUnavailable(f"{view.trouble}. Messages can only be checked while the broker can be reached.")
    queues = carried_queues(settings, store=invocation.store, known=known)
    looks, findings = asyncio.run(_look(invocation, url, queues, only_looks=only_looks))
    lost = {finding.queue: finding for finding in findings}
    rows = [_row(queue, look, lost.pop(queue, None), settings.rabbitmq) for queue, look in sorted(looks.items())]
    rows += [
        {"queue": queue, "ready": None, "lost": found.lost, "why": found.why} for queue, found in sorted(lost.items())
    ]
    title = "lost" if only_looks else "sent again"
    section = Section(
        columns=("queue", "waiting at the broker", title, "why"),
        rows=[tuple(row.values()) for row in rows],
        numbers=frozenset({"waiting at the broker", title}),
        empty="No carried queue has jobs.",
    )
    document = {"dry_run": only_looks, "queues": rows}
    invocation.output.result(document, lambda: invocation.output.table(section))


class ByHand(Leader):
    """Leads without an election, because a person asked for the check."""

    @property
    def is_leading(self) -> bool:
        """Always true."""
        return True


async def _look(
    invocation: Invocation, url: str, queues: list[str], *, only_looks: bool
) -> tuple[dict[str, QueueCheck], list[Finding]]:
    store, signals = AsyncStore(invocation.store), Signals()
    try:
        reconciler = Reconciler(
            store,
            ByHand(store, signals, owner=new_id(), clock=SystemClock(), term=TERM),
            signals,
            url=url,
            settings=invocation.settings.rabbitmq,
            queues=queues,
            is_by_hand=True,
            only_looks=only_looks,
            alerts=AlertingRunner(store, signals),
        )
        findings = await reconciler.run_once()
        return reconciler.looks, findings
    finally:
        store.close()


def _row(queue: str, look: QueueCheck, finding: Finding | None, settings: RabbitmqSettings) -> dict[str, Any]:
    ready = None if look.depth is None else look.depth.ready
    why = _why(finding, settings) if finding is not None else _why_not(look, settings)
    return {"queue": queue, "ready": ready, "lost": 0 if finding is None else finding.lost, "why": why}


def _why(finding: Finding, settings: RabbitmqSettings) -> str:
    """Explain why messages count as lost, and how many were not sent again."""
    if not finding.unanswered:
        return finding.why
    return (
        f"{finding.why}; never answered and now dead letters: {finding.unanswered} (max_sends is {settings.max_sends})"
    )


def _why_not(look: QueueCheck, settings: RabbitmqSettings) -> str:
    """Explain why no message of a queue counts as lost."""
    if look.lost_after is not None:
        return "no job has waited that long for its message"
    if look.depth is None:
        silence = f"{settings.quiet_time_seconds:g} s"
        return f"the broker does not report its queue length, and the queue was not silent for {silence}"
    if look.depth.ready:
        return "messages are waiting in the queue, and the missing ones may be among them"
    empty = duration_text(look.channel.empty_for_us or 0)
    if look.depth.consumers <= look.heard:
        return f"the queue has been empty for only {empty}; {settings.lost_after_seconds:g} s are needed"
    consumers = "1 consumer" if look.depth.consumers == 1 else f"{look.depth.consumers} consumers"
    return f"the queue has {consumers}, of which {look.heard} are known workers: an unknown one may hold the message"
