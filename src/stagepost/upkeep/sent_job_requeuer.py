"""Returns jobs that were sent to a broker to their queues when no broker carries them any more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.store.leaders import list_leaders
from stagepost.store.queue_observations import forget_queues
from stagepost.store.sending import put_back_lost, read_clock, sent_queues
from stagepost.upkeep.leader import BROKER, Leader

__all__ = ["UNCARRIED", "SentJobRequeuer", "requeue_uncarried"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 5000
FORGOTTEN = timedelta(hours=1)
"""How long after the last use of a broker the observations of its queues are deleted."""
UNCARRIED = "the broker does not carry its queue any more"


class SentJobRequeuer(Service):
    """Returns sent jobs to their queues where no broker is used any more, so that workers find them in the database.

    It does nothing while any worker still uses a broker, as during a deployment: that worker's reconciler does.
    """

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        signals: Signals,
        *,
        interval: float = 5.0,
    ) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._leader = leader
        self._signals = signals

    async def run_once(self) -> int:
        """Return all sent jobs to their queues; returns how many."""
        if not self._leader.is_leading:
            return 0
        if any(leadership.name == BROKER for leadership in await self._store.run(list_leaders())):
            return 0
        await self._store.run(forget_queues(silent=FORGOTTEN))
        now = await self._store.run(read_clock())
        found = await requeue_uncarried(self._store, lambda _queue: False, now)
        if found:
            self._signals.jobs_ready.send()
        return sum(map(len, found.values()))


async def requeue_uncarried(store: AsyncStore, carries: Callable[[str], bool], before: int) -> dict[str, list[str]]:
    """Queue jobs again that were sent while a broker carried their queue, if none does now; returns ids by queue."""
    found: dict[str, list[str]] = {}
    for queue in await store.run(sent_queues()):
        while not carries(queue):
            back = await store.run(put_back_lost(queue, sent_before=before, most=MOST_AT_ONCE))
            found.setdefault(queue, []).extend(back.again)
            if len(back.again) < MOST_AT_ONCE:
                log.info("queue %s: %d sent jobs return to the queue: %s", queue, len(found[queue]), UNCARRIED)
                break
    return {queue: jobs for queue, jobs in found.items() if jobs}
