"""Publishes the jobs of queues that a broker carries."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from operator import attrgetter

from stagepost.clock import Clock
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.errors import TransportError
from stagepost.loops.failure_log import FailureLog
from stagepost.loops.service import Service
from stagepost.model.alert import Alert, AlertKind
from stagepost.model.envelope import Message, request_for
from stagepost.model.groups import ReadSize, groups_of
from stagepost.store.counting import count_by_queue
from stagepost.store.queues import ALL_QUEUES, QueueLimits, queue_settings
from stagepost.store.sending import Unsent, mark_sent, refuse_unsent, sent_jobs, unsent
from stagepost.store.settlement import Fence
from stagepost.transport.rabbitmq.publisher import Publisher, Verdict
from stagepost.upkeep.alerting import AlertingRunner
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.outgoing import Outgoing
from stagepost.upkeep.threads import in_thread

__all__ = ["Relay"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 2000
GROUP = 500
"""How many jobs are published together; they are marked as sent while the next group is published."""
MOST_BYTES = 8 * 1024 * 1024
"""Most bytes of payloads that are read at once; half as many are published together."""
FIRST = 100
"""How many jobs of a queue are read while their sizes are unknown."""
LONGEST_REST_SECONDS = 0.02
"""After publishing a few jobs, the relay pauses for twice as long as that took, at most for this time. Jobs that
arrive meanwhile are published together. A single job does not wait."""
FEWEST_AT_ONCE = 10
REFUSED_SECONDS = 0.2
"""How long to wait before publishing to a full queue again."""
RETURNED_SECONDS = 1.0
"""How long to wait before publishing to a queue again after messages were returned."""
LEARN_SECONDS = 5.0
"""Interval between searches for queues that another app has begun to use, and for changed limits."""
AHEAD_OF_LIMIT = 100
"""How many more messages than jobs may run at once are sent for a queue with a limit."""


class Relay(Service):
    """Publishes queued jobs in their order and marks those that the broker confirmed.

    A crash in between, or a second relay, causes duplicate messages, and loses no job.
    """

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        publisher: Publisher,
        *,
        settings: RabbitmqSettings,
        queues: list[str],
        clock: Clock,
        interval: float = 1.0,
        declare: Callable[[Sequence[str]], None] = lambda _queues: None,
        alerts: AlertingRunner,
    ) -> None:
        """`declare` creates what the broker needs for queues; it is called in a thread. The relay adds to `queues`."""
        super().__init__(interval=interval)
        self.sent = 0
        self.queues = queues
        """All queues that it publishes for. It adds carried queues that it finds in the database."""
        self._store = store
        self._leader = leader
        self._publisher = publisher
        self._settings = settings
        self._clock = clock
        self._declare = declare
        self._learned_at = float("-inf")
        self._limits: dict[str, float] = {}
        self._most: dict[str, int] = {}
        self._portions: dict[str, ReadSize] = {}
        self._resting: dict[str, float] = {}
        self._returned_since: dict[str, dict[Fence, float]] = {}
        self._alerts = alerts
        self._outgoing = Outgoing(
            store, publisher, settings=settings, queues=self.queues, clock=clock, alerts=self._alerts
        )

    def report_to(self, failure_log: FailureLog, *, name: str) -> None:
        """Let the connection to the broker report to the same log."""
        super().report_to(failure_log, name=name)
        self._publisher.failure_log = failure_log

    async def run(self) -> None:
        """Run with an open connection to the broker, and publish as soon as it works."""
        self._publisher.on_working = partial(_wake_on, asyncio.get_running_loop(), self.wake)
        self._publisher.start()
        try:
            await super().run()
        finally:
            await in_thread(self._publisher.stop)

    async def run_once(self) -> int:
        """Publish jobs that are ready; returns how many messages the broker confirmed."""
        if not self._leader.is_leading or self._publisher.trouble is not None:
            return 0
        await self._learn()
        began = self._clock.monotonic()
        confirmed = 0
        for queue in self.queues:
            if self._resting.get(queue, float("-inf")) > self._clock.monotonic() or self.is_stopping:
                continue
            portion = self._portions.setdefault(queue, ReadSize(most=MOST_AT_ONCE, most_bytes=MOST_BYTES, first=FIRST))
            most = min(self._most.get(queue, MOST_AT_ONCE), await self._room(queue), portion.next())
            jobs = await self._store.run(unsent(queue, most=most)) if most > 0 else []
            if jobs:
                portion.note([job.size for job in jobs])
                done = await self._send(queue, jobs)
                confirmed += done
                if done == most:
                    self.wake()
        self.sent += confirmed
        await self._outgoing.send()
        if self._outgoing.has_more:
            self.wake()
        elif 0 < confirmed < GROUP:
            await asyncio.sleep(min(2 * (self._clock.monotonic() - began), LONGEST_REST_SECONDS))
        return confirmed

    async def _learn(self) -> None:
        """Find carried queues that this process has no tasks for: the leader publishes for all apps."""
        now = self._clock.monotonic()
        if now - self._learned_at < LEARN_SECONDS:
            return
        self._learned_at = now
        used = await self._store.run(count_by_queue())
        self.queues += [queue for queue in self._settings.carried(sorted(used)) if queue not in self.queues]
        found = await self._store.run(queue_settings(self.queues))
        limits = {name: _limit(settings) for name, settings in found.items()}
        self._limits = {
            queue: min(limits[queue], limits[ALL_QUEUES])
            for queue in self.queues
            if min(limits[queue], limits[ALL_QUEUES]) < math.inf
        }

    async def _room(self, queue: str) -> int:
        """Return how many more messages a queue may get: few more than may run, because workers return the others."""
        if queue not in self._limits:
            return MOST_AT_ONCE
        most = math.ceil(self._limits[queue]) + AHEAD_OF_LIMIT
        return most - len(await self._store.run(sent_jobs(queue, older=timedelta(0), most=most)))

    async def _send(self, queue: str, jobs: list[Unsent]) -> int:
        routing_key = self._settings.routing_key(queue)
        own = self._settings.of(queue)
        by_verdict: dict[Verdict, list[Fence]] = {verdict: [] for verdict in Verdict}
        marking: asyncio.Task[int] | None = None
        for group in groups_of(jobs, size=attrgetter("size"), most=GROUP, most_bytes=MOST_BYTES // 2):
            messages = [_message(routing_key, job, own.message_priority(job.priority)) for job in group]
            verdicts = await asyncio.wrap_future(self._publisher.publish(messages))
            marked = len(by_verdict[Verdict.CONFIRMED])
            for job, verdict in zip(group, verdicts, strict=True):
                by_verdict[verdict].append((job.id, job.attempt))
            there = by_verdict[Verdict.CONFIRMED][marked:]
            if marking is not None:
                await marking
            marking = asyncio.create_task(self._store.run(mark_sent(there, read_at=min(job.read_at for job in jobs))))
            if by_verdict[Verdict.REFUSED] or by_verdict[Verdict.UNKNOWN]:
                break  # later jobs would overtake those that have to wait
        if marking is not None:
            await marking
        tried = sum(map(len, by_verdict.values()))
        self._slow_down_if_full(queue, tried=tried, refused=len(by_verdict[Verdict.REFUSED]))
        await self._handle_returned(queue, by_verdict[Verdict.RETURNED])
        return len(by_verdict[Verdict.CONFIRMED])

    def _slow_down_if_full(self, queue: str, *, tried: int, refused: int) -> None:
        """Publish fewer messages, after a pause, while a queue is full; the jobs keep their order in the database."""
        if refused:
            self._most[queue] = max(FEWEST_AT_ONCE, tried // 2)
            self._rest(queue, REFUSED_SECONDS)
        elif queue in self._most:
            self._most[queue] = min(MOST_AT_ONCE, self._most[queue] * 2)

    async def _handle_returned(self, queue: str, returned: list[Fence]) -> None:
        """Recreate the queue if messages were returned twice; after `unroutable_timeout_seconds` their jobs fail."""
        known = self._returned_since.pop(queue, {})
        if not returned:
            self.failure_log.worked(_declaring(queue))
            return
        now = self._clock.monotonic()
        since = {fence: known.get(fence, now) for fence in returned}
        late = [fence for fence in returned if now - since[fence] >= self._settings.unroutable_timeout_seconds]
        if late:
            await self._refuse(queue, late)
        self._returned_since[queue] = {fence: since[fence] for fence in returned if fence not in late}
        if known:
            await self._create_queue(queue)
        else:
            # Not at once: if a deleted queue is created again before the broker has notified its consumers, they never
            # learn that they lost it. Consumers that are notified create the queue themselves.
            log.warning("queue %s: %s; trying again", queue, self._unroutable_reason(queue))
        self._rest(queue, RETURNED_SECONDS)

    async def _create_queue(self, queue: str) -> None:
        try:
            await in_thread(self._declare, self.queues)
        except TransportError as error:
            self.failure_log.failed(_declaring(queue), error)
        else:
            self.failure_log.worked(_declaring(queue))

    async def _refuse(self, queue: str, late: list[Fence]) -> None:
        error = f"{self._unroutable_reason(queue)} for {self._settings.unroutable_timeout_seconds:g} s"
        about = partial(Alert.of_jobs, AlertKind.UNROUTABLE, reason=error, queue=queue)
        refused = await self._alerts.run(refuse_unsent(late, error=error), about)
        if refused:
            log.error("queue %s: %d jobs failed: %s", queue, len(refused), error)

    def _unroutable_reason(self, queue: str) -> str:
        exchange, key = self._settings.exchange_name, self._settings.routing_key(queue)
        return f"RabbitMQ returns messages: no queue is bound to exchange {exchange} by {key}"

    def _rest(self, queue: str, seconds: float) -> None:
        self._resting[queue] = self._clock.monotonic() + seconds
        asyncio.get_running_loop().call_later(seconds, self.wake)


def _wake_on(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop is closed
        loop.call_soon_threadsafe(wake)


def _declaring(queue: str) -> str:
    return f"declaring queue {queue}"


def _limit(settings: QueueLimits) -> float:
    """Return how many jobs of a queue may start now."""
    rate = math.inf if settings.rate is None else max(settings.rate.per_second, settings.rate.burst)
    return min(math.inf if settings.max_running is None else settings.max_running, rate)


def _message(routing_key: str, job: Unsent, priority: int | None) -> Message:
    return request_for(
        routing_key=routing_key,
        job_id=job.id,
        task_name=job.task_name,
        attempt=job.attempt,
        created_at=job.created_at,
        payload=job.payload,
        context=job.context,
        priority=priority,
    )
