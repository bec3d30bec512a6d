"""Finds messages that got lost, and lets their jobs be sent again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.errors import TransportError
from stagepost.model.job import microseconds
from stagepost.store.async_store import AsyncStore
from stagepost.store.sending import Channel, look_at, put_back, sent_jobs, sent_queues
from stagepost.transport.rabbitmq.admin import Depth, depths
from stagepost.transport.rabbitmq.topology import topology_of
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.service import Service

__all__ = ["Finding", "Reconciler", "lost_for"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 5000
NO_QUEUES: Mapping[str, timedelta] = {}


class Finding(msgspec.Struct, frozen=True):
    """What a look at one queue found."""

    queue: str
    why: str
    lost: int
    """Jobs whose message is gone; they are sent again."""


def lost_for(
    depth: Depth | None, channel: Channel, settings: RabbitmqSettings, *, patience: timedelta = timedelta(0)
) -> timedelta | None:
    """Decide from when on messages of a queue are lost: those sent longer ago than this; None if none is for sure.

    While messages wait in the queue, or somebody takes them, all others may wait, too. Where the broker does not tell
    how many wait, only a long silence says that nobody works on them. `patience` is how long a program that runs
    remote tasks may have them without a word.
    """
    idle_us = channel.idle_for_us
    if depth is None:
        silence = max(timedelta(seconds=settings.quiet_time), patience)
        return silence if idle_us is None or idle_us >= microseconds(silence) else None
    silence = max(timedelta(seconds=settings.lost_after), patience)
    if depth.ready or channel.empty_for_us is None or channel.empty_for_us < microseconds(silence):
        return None
    return silence if idle_us is None or idle_us >= microseconds(silence) else None


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
    ) -> None:
        super().__init__(interval=max(0.2, min(5.0, settings.lost_after / 3)))
        self.resent = 0
        self.looks = 0
        """How often the broker has said how its queues stand."""
        self._gap = timedelta(seconds=settings.lost_after)
        self._store = store
        self._leader = leader
        self._url = url
        self._settings = settings
        self._queues = list(queues)
        self._remote = dict(remote)
        self._on_found = on_found

    async def run_once(self) -> list[Finding]:
        """Look once; what was lost is to be sent again afterwards."""
        if not self._leader.is_leading:
            return []
        findings = []
        for queue, depth in (await self._depths()).items():
            is_empty = depth is not None and depth.ready == 0
            channel = await self._store.run(look_at(queue, is_empty=is_empty, gap=self._gap))
            patience = self._remote.get(queue, timedelta(0))
            older = lost_for(depth, channel, self._settings, patience=patience)
            if older is not None:
                findings += await self._send_again(queue, older, "its queue is empty and nobody takes from it")
        for queue in await self._store.run(sent_queues()):
            if not self._settings.carries(queue):
                findings += await self._send_again(queue, timedelta(0), "its queue is not carried by the broker")
        if findings:
            self._on_found()
        return findings

    async def _depths(self) -> dict[str, Depth | None]:
        """Ask how queues stand; while answers wait for us, the queue of a remote task has not been emptied."""
        plans = topology_of(self._settings, self._queues).queues
        wanted = [plan for plan in plans if plan.carries or (self._remote and plan.name == self._settings.answers)]
        try:
            found = await asyncio.to_thread(depths, self._url, wanted)
        except TransportError:
            return {}  # said by those who need the broker; while it is away nothing can be known
        self.looks += 1
        answers = found.get(self._settings.answers)
        standing = {}
        for plan in plans:
            if plan.carries:
                depth = found[plan.name]
                if depth is not None and answers is not None and plan.carries in self._remote:
                    depth = Depth(depth.ready + answers.ready, depth.consumers)
                standing[plan.carries] = depth
        return standing

    async def _send_again(self, queue: str, older: timedelta, why: str) -> list[Finding]:
        jobs = await self._store.run(sent_jobs(queue, older=older, most=MOST_AT_ONCE))
        again = await self._store.run(put_back([job.id for job in jobs])) if jobs else []
        if not again:
            return []
        self.resent += len(again)
        log.warning("queue %s: %d jobs are sent again, their messages are lost: %s", queue, len(again), why)
        if len(jobs) >= MOST_AT_ONCE:
            self.wake()
        return [Finding(queue, why, len(again))]
