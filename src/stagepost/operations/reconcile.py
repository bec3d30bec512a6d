"""Checks once for lost messages of the broker, and explains the result for every queue."""

from __future__ import annotations

import asyncio

import msgspec

from stagepost.client.app import App
from stagepost.client.broker import broker_url
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

__all__ = ["ReconciledQueue", "reconcile", "reconcile_async"]


class ReconciledQueue(msgspec.Struct, frozen=True):
    """The result of the check for one queue."""

    queue: str
    """Its name."""
    ready: int | None
    """Messages that wait at the broker; None if it does not report them."""
    lost: int
    """Number of jobs whose message was lost, and which are sent again."""
    why: str
    """Why messages count as lost, or why none does."""


def reconcile(app: App, *, dry_run: bool = False) -> list[ReconciledQueue]:
    """Find jobs whose broker message was lost, and mark them to be sent again; with `dry_run` only find them.

    Workers do this continuously. A message counts as lost when its queue has been empty, with no message taken from it,
    for some time, so the first check of a queue may be inconclusive. Must not be called on an event loop.
    """
    return asyncio.run(reconcile_async(app, dry_run=dry_run))


async def reconcile_async(app: App, *, dry_run: bool = False) -> list[ReconciledQueue]:
    """Find jobs whose broker message was lost without blocking the event loop."""
    url, settings, known = broker_url(app), app.settings, app.registry.queues
    view = await asyncio.to_thread(query_broker, app.store, settings, known=known)
    if view is not None and view.trouble is not None:
        raise BrokerUnavailable(f"{view.trouble}. Messages can only be checked while the broker can be reached.")
    queues = await asyncio.to_thread(carried_queues, settings, store=app.store, known=known)
    looks, findings = await _look(app, url, queues, dry_run=dry_run)
    lost = {finding.queue: finding for finding in findings}
    rows = [_row(queue, look, lost.pop(queue, None), settings.rabbitmq) for queue, look in sorted(looks.items())]
    return rows + [ReconciledQueue(queue, None, found.lost, found.why) for queue, found in sorted(lost.items())]


class ByHand(Leader):
    """Leads without an election, because a person asked for the check."""

    @property
    def is_leading(self) -> bool:
        """Always true."""
        return True


async def _look(app: App, url: str, queues: list[str], *, dry_run: bool) -> tuple[dict[str, QueueCheck], list[Finding]]:
    store, signals = AsyncStore(app.store), Signals()
    try:
        reconciler = Reconciler(
            store,
            ByHand(store, signals, owner=new_id(), clock=SystemClock(), term=TERM),
            signals,
            url=url,
            settings=app.settings.rabbitmq,
            queues=queues,
            is_by_hand=True,
            only_looks=dry_run,
            alerts=AlertingRunner(store, signals),
        )
        findings = await reconciler.run_once()
        return reconciler.looks, findings
    finally:
        store.close()


def _row(queue: str, look: QueueCheck, finding: Finding | None, settings: RabbitmqSettings) -> ReconciledQueue:
    ready = None if look.depth is None else look.depth.ready
    why = _why(finding, settings) if finding is not None else _why_not(look, settings)
    return ReconciledQueue(queue, ready, 0 if finding is None else finding.lost, why)


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
    if look.depth.consumers <= look.heard:
        empty = f"{(look.channel.empty_for_us or 0) / 1_000_000:.0f} s"
        return f"the queue has been empty for only {empty}; {settings.lost_after_seconds:g} s are needed"
    consumers = "1 consumer" if look.depth.consumers == 1 else f"{look.depth.consumers} consumers"
    return f"the queue has {consumers}, of which {look.heard} are known workers: an unknown one may hold the message"
