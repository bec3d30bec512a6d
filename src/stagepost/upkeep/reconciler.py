"""Finds messages that got lost, and lets their jobs be sent again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.errors import TransportError
from stagepost.model.job import microseconds
from stagepost.store.async_store import AsyncStore
from stagepost.store.sending import Channel, look_at, put_back_lost, read_clock, sent_queues
from stagepost.store.workers import list_workers
from stagepost.transport.rabbitmq.admin import Depth, depths
from stagepost.transport.rabbitmq.topology import topology_of
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.service import Service
from stagepost.upkeep.threads import in_thread

__all__ = ["Finding", "Reconciler", "Uncarried", "lost_for"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 5000
UNCARRIED = "the broker does not carry its queue any more"


class Finding(msgspec.Struct, frozen=True):
    """What a look at one queue found."""

    queue: str
    why: str
    lost: int
    """Jobs whose message is gone; they are sent again."""


def lost_for(depth: Depth | None, channel: Channel, settings: RabbitmqSettings, *, heard: int = 0) -> timedelta | None:
    """Decide from when on messages of a queue are lost: those sent longer ago than this; None if none is for sure.

    While messages wait in the queue, all others may wait, too. Once it is seen empty for a while, a message that is
    not lost must be with a consumer, and our workers claim what they have at once: it is lost if all consumers are
    workers that were `heard` from meanwhile. Where others consume, or the broker does not tell how many wait, only a
    long silence says that nobody works on it.
    """
    soon, late = timedelta(seconds=settings.lost_after), timedelta(seconds=settings.quiet_time)
    is_silent = channel.idle_for_us is None or channel.idle_for_us >= microseconds(late)
    if depth is None:
        return late if is_silent else None
    if depth.ready or channel.empty_for_us is None:
        return None
    if depth.consumers <= heard:
        return soon if channel.empty_for_us >= microseconds(soon) else None
    return late if is_silent and channel.empty_for_us >= microseconds(late) else None


class Reconciler(Service):
    """Looks at every queue now and then; only the leader does."""

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        *,
        url: str,
        settings: RabbitmqSettings,
        queues: Sequence[str],
        on_found: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(interval=max(0.2, min(5.0, settings.lost_after / 3)))
        self.resent = 0
        self._store = store
        self._leader = leader
        self._url = url
        self._settings = settings
        self._queues = queues
        self._on_found = on_found

    async def run_once(self) -> list[Finding]:
        """Look once; what was lost is to be sent again afterwards."""
        if not self._leader.is_leading:
            return []
        # Before the look: what is sent while we look, however long that takes, is not in question.
        began = await self._store.run(read_clock())
        found = await self._depths()
        findings = []
        for queue, depth in found.items():
            findings += await self._judge(queue, depth, began)
        findings += [
            Finding(queue, UNCARRIED, len(jobs))
            for queue, jobs in (await put_back_uncarried(self._store, self._settings.carries, began)).items()
        ]
        if findings:
            self._on_found()
        return findings

    async def _judge(self, queue: str, depth: Depth | None, began: int) -> list[Finding]:
        is_empty = depth is not None and depth.ready == 0
        gap = timedelta(seconds=max(self._settings.lost_after, 2 * self.interval))
        channel = await self._store.run(look_at(queue, is_empty=is_empty, gap=gap))
        heard = 0 if depth is None or not depth.consumers else await self._heard(queue)
        older = lost_for(depth, channel, self._settings, heard=heard)
        if older is None:
            return []
        return await self._send_again(queue, began - microseconds(older), _why(depth))

    async def _heard(self, queue: str) -> int:
        """Count the workers of a queue whose loop has turned since messages could have come to them."""
        latest = self._settings.lost_after * 1e6
        workers = await self._store.run(list_workers())
        return sum(queue in worker.queues and worker.silent_us < latest for worker in workers)

    async def _depths(self) -> dict[str, Depth | None]:
        plans = {plan.carries: plan for plan in topology_of(self._settings, self._queues).queues if plan.carries}
        try:
            found = await in_thread(depths, self._url, list(plans.values()))
        except TransportError:
            return {}  # said by those who need the broker; while it is away nothing can be known
        return {queue: found[plan.name] for queue, plan in plans.items()}

    async def _send_again(self, queue: str, sent_before: int, why: str) -> list[Finding]:
        again = await self._store.run(put_back_lost(queue, sent_before=sent_before, most=MOST_AT_ONCE))
        if not again:
            return []
        self.resent += len(again)
        log.warning("queue %s: %d jobs are sent again, their messages are lost: %s", queue, len(again), why)
        if len(again) >= MOST_AT_ONCE:
            self.wake()
        return [Finding(queue, why, len(again))]


class Uncarried(Service):
    """Where no broker is used: puts back what was sent while one was, so that workers find it in the database."""

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        *,
        interval: float = 10.0,
        on_found: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._leader = leader
        self._on_found = on_found

    async def run_once(self) -> int:
        """Put back what there is; returns how many jobs."""
        if not self._leader.is_leading:
            return 0
        now = await self._store.run(read_clock())
        found = await put_back_uncarried(self._store, lambda _queue: False, now)
        if found:
            self._on_found()
        return sum(map(len, found.values()))


async def put_back_uncarried(store: AsyncStore, carries: Callable[[str], bool], before: int) -> dict[str, list[str]]:
    """Let workers find jobs in the database that were sent when a broker carried their queue, and now none does."""
    found: dict[str, list[str]] = {}
    for queue in await store.run(sent_queues()):
        while not carries(queue):
            jobs = await store.run(put_back_lost(queue, sent_before=before, most=MOST_AT_ONCE))
            found.setdefault(queue, []).extend(jobs)
            if len(jobs) < MOST_AT_ONCE:
                log.info("queue %s: %d jobs that were sent go back: %s", queue, len(found[queue]), UNCARRIED)
                break
    return {queue: jobs for queue, jobs in found.items() if jobs}


def _why(depth: Depth | None) -> str:
    if depth is None:
        return "nothing was taken from its queue for the quiet time"
    return "its queue is empty"
