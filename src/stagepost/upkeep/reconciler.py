"""Finds messages that got lost, and lets their jobs be sent again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.errors import TransportError
from stagepost.model.job import microseconds
from stagepost.store.async_store import AsyncStore
from stagepost.store.sending import Channel, look_at, lost_jobs, put_back_lost, read_clock, sent_queues
from stagepost.store.workers import list_workers
from stagepost.transport.rabbitmq.admin import Depth, depths
from stagepost.transport.rabbitmq.topology import topology_of
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.service import Service
from stagepost.upkeep.threads import in_thread

__all__ = ["Finding", "Look", "Reconciler", "Uncarried", "lost_for"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 5000
SLOW_SECONDS = 10.0
"""How much longer than usual the time between looks may be, on a busy machine, before they say nothing of it."""
NO_QUEUES: Mapping[str, timedelta] = {}
UNCARRIED = "the broker does not carry its queue any more"


class Finding(msgspec.Struct, frozen=True):
    """What a look at one queue found."""

    queue: str
    why: str
    lost: int
    """Jobs whose message is gone; they are sent again."""


class Look(msgspec.Struct, frozen=True):
    """What was seen of a queue, and what follows."""

    depth: Depth | None
    channel: Channel
    lost_after: timedelta | None
    """Messages sent longer ago are lost; None if none is for sure."""
    heard: int = 0
    """How many workers of the queue were heard from lately."""


def lost_for(
    depth: Depth | None,
    channel: Channel,
    settings: RabbitmqSettings,
    *,
    heard: int = 0,
    patience: timedelta | None = None,
) -> timedelta | None:
    """Decide from when on messages of a queue are lost: those sent longer ago than this; None if none is for sure.

    While messages wait in the queue, all others may wait, too. Once it is seen empty for a while, a message that is
    not lost must be with a consumer, and our workers claim what they have at once: it is lost if all consumers are
    workers that were `heard` from meanwhile. Where others consume, or the broker does not tell how many wait, only a
    long silence says that nobody works on it: as long as a program that runs remote tasks may have a request without
    a word, which is `patience`, or the quiet time. Such a program may have gone, and its answer be here in our hands.
    """
    soon, late = timedelta(seconds=settings.lost_after), timedelta(seconds=settings.quiet_time)
    if depth is None:
        late = max(late, patience or late)
    elif depth.ready or channel.empty_for_us is None:
        return None
    elif patience is None and depth.consumers <= heard:
        return soon if channel.empty_for_us >= microseconds(soon) else None
    elif patience is not None:
        late = max(soon, patience)
    is_silent = channel.idle_for_us is None or channel.idle_for_us >= microseconds(late)
    is_empty = depth is None or (channel.empty_for_us or 0) >= microseconds(late)
    return late if is_silent and is_empty else None


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
        remote: Mapping[str, timedelta] = NO_QUEUES,
        on_found: Callable[[], None] = lambda: None,
        only_looks: bool = False,
    ) -> None:
        super().__init__(interval=max(0.2, min(5.0, settings.lost_after / 3)))
        self.resent = 0
        self.passes = 0
        """How often the broker has said how its queues stand."""
        self._store = store
        self._leader = leader
        self._url = url
        self._settings = settings
        self._queues = queues
        self._remote = dict(remote)
        self._on_found = on_found
        self._only_looks = only_looks
        self.looks: dict[str, Look] = {}
        """What the last pass saw of each queue."""

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
        if not self._only_looks:
            uncarried = await put_back_uncarried(self._store, self._settings.carries, began)
            findings += [Finding(queue, UNCARRIED, len(jobs)) for queue, jobs in uncarried.items()]
        if findings:
            self._on_found()
        return findings

    async def _judge(self, queue: str, depth: Depth | None, began: int) -> list[Finding]:
        is_empty = depth is not None and depth.ready == 0
        gap = timedelta(seconds=self._settings.lost_after + SLOW_SECONDS)
        channel = await self._store.run(look_at(queue, is_empty=is_empty, gap=gap))
        heard = 0 if depth is None or not depth.consumers else await self._heard(queue)
        older = lost_for(depth, channel, self._settings, heard=heard, patience=self._remote.get(queue))
        self.looks[queue] = Look(depth, channel, older, heard)
        if older is None:
            return []
        return await self._send_again(queue, began - microseconds(older), _why(depth))

    async def _heard(self, queue: str) -> int:
        """Count the workers of a queue whose loop has turned since messages could have come to them."""
        latest = self._settings.lost_after * 1e6
        workers = await self._store.run(list_workers())
        return sum(queue in worker.queues and worker.silent_us < latest for worker in workers)

    async def _depths(self) -> dict[str, Depth | None]:
        """Ask how queues stand; while answers wait for us, the queue of a remote task has not been emptied."""
        plans = topology_of(self._settings, self._queues).queues
        wanted = [plan for plan in plans if plan.carries or (self._remote and plan.name == self._settings.answers)]
        try:
            found = await in_thread(depths, self._url, wanted)
        except TransportError:
            return {}  # said by those who need the broker; while it is away nothing can be known
        self.passes += 1
        answers = found.get(self._settings.answers)
        standing = {}
        for plan in plans:
            if plan.carries:
                depth = found[plan.name]
                if depth is not None and answers is not None and plan.carries in self._remote:
                    depth = Depth(depth.ready + answers.ready, depth.consumers)
                standing[plan.carries] = depth
        return standing

    async def _send_again(self, queue: str, sent_before: int, why: str) -> list[Finding]:
        if self._only_looks:
            lost = await self._store.run(lost_jobs(queue, sent_before=sent_before, most=MOST_AT_ONCE))
            return [Finding(queue, why, len(lost))] if lost else []
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
