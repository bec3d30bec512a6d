"""Leases the jobs that messages name: the claimer of queues that a broker carries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import msgspec

from stagepost.clock import Clock
from stagepost.config.rabbitmq import MOST_PREFETCH, RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.errors import BadMessage
from stagepost.loops.signals import Signals
from stagepost.model.envelope import decode_envelope
from stagepost.model.limits import NO_RULES, LimitRules
from stagepost.store.leases import release_unknown_leases
from stagepost.store.queues import ALL_QUEUES, queue_settings
from stagepost.store.sending import ClaimedDeliveries, take_delivered
from stagepost.store.settlement import Fence
from stagepost.transport.rabbitmq.consumed_queue import Delivery
from stagepost.upkeep.message_ingester import MessageIngester
from stagepost.worker.activity import Activity
from stagepost.worker.front import FrontClearer
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from stagepost.worker.stalled_consumers import StalledConsumerCheck

__all__ = ["BadDelivery", "Receiver"]

MOST_AT_ONCE = 500
SETTINGS_SECONDS = 1.0
BUSY_SECONDS = 1.0
"""A queue that delivered nothing for this long is not read ahead."""
LARGE_BODY = 10_000
"""Bodies of at least this size are released when their job is leased."""


BadDelivery = tuple[Delivery, str]
"""A message that cannot be read, and the reason."""


class Receiver(MessageIngester):
    """Leases the jobs that messages name, and acknowledges a message when its attempt has ended or cannot run.

    A duplicate or late message, or one for a job that has ended, is acknowledged and counted: the job's row decides.
    """

    def __init__(
        self,
        store: AsyncStore,
        attempts: LeasedAttempts,
        signals: Signals,
        *,
        url: str,
        settings: RabbitmqSettings,
        queues: Sequence[str],
        slots: int,
        messages_ahead: Callable[[], int],
        task_names: Sequence[str],
        owner: str,
        lease: timedelta,
        start: Callable[[list[LeasedAttempt]], None],
        clock: Clock,
        prepare: Callable[[], None],
        on_bad: Callable[[list[BadDelivery]], Awaitable[None]],
        rules: LimitRules = NO_RULES,
    ) -> None:
        """`on_bad` stores messages that cannot be read; they are acknowledged when it returns."""
        super().__init__(
            url,
            {settings.routing_key(queue): _prefetch(settings, queue, slots=slots) for queue in queues},
            name="stagepost-consume",
            prepare=prepare,
            most_at_once=MOST_AT_ONCE,
            interval=SETTINGS_SECONDS,
        )
        self.needless = 0
        """Number of messages without a job to run: duplicates, stale messages and those of unknown jobs."""
        self.bad = 0
        """Number of messages that could not be read."""
        self._store = store
        self._attempts = attempts
        self._names = {settings.routing_key(queue): queue for queue in queues}
        self._task_names = tuple(task_names)
        self._owner = owner
        self._lease = lease
        self._start = start
        self._clock = clock
        self._on_bad = on_bad
        self._activity = Activity(store, clock)
        self._consumer_check = StalledConsumerCheck(
            store, clock, {queue: settings.routing_key(queue) for queue in queues}, lambda: self.consumer
        )
        self._held: dict[Fence, list[Delivery]] = {}
        self._messages_ahead = messages_ahead
        self._busy_until = {
            settings.routing_key(queue): float("-inf") for queue in queues if settings.of(queue).prefetch is None
        }
        """When each queue without a fixed prefetch counts as idle, unless another message arrives."""
        self._limited: frozenset[str] = frozenset()
        self._settings_read_at = float("-inf")
        self.may_have_unknown_leases = False
        """Whether the reply to a claim was lost, so that jobs may be leased to this worker without its knowledge."""
        self._rules = rules
        self._signals = signals
        self._front = FrontClearer(store, rules, clock, self._signals)

    async def _prepare_pass(self) -> None:
        if self.may_have_unknown_leases:
            async with self._attempts.claiming:
                held = [attempt.fence for attempt in self._attempts.all()]
                await self._store.run(release_unknown_leases(owner=self._owner, held=held))
            self.may_have_unknown_leases = False
        await self._read_settings()
        await self._consumer_check.look()
        self._read_ahead()

    async def _take_in(self, deliveries: list[Delivery]) -> int:
        """Lease the jobs that messages name; returns how many."""
        queues: dict[str, list[Delivery]] = {}
        for delivery in deliveries:
            queues.setdefault(self._names[delivery.queue], []).append(delivery)
        busy_until = self._clock.monotonic() + BUSY_SECONDS
        self._busy_until |= {name: busy_until for name in self._busy_until if self._names[name] in queues}
        leased = sum([await self._take(queue, named) for queue, named in queues.items()])
        self._read_ahead()
        return leased

    def _read_ahead(self) -> None:
        """Let busy queues share the messages that this worker holds beyond its slots, so that short jobs do not wait.

        An explicit `prefetch` stays as it is.
        """
        now = self._clock.monotonic()
        busy = [queue for queue, until in self._busy_until.items() if until > now]
        share = self._messages_ahead() // len(busy) if busy else 0
        for queue in self._busy_until:
            self.consumer.read_ahead(queue, share if queue in busy else 0)

    async def _take(self, queue: str, deliveries: list[Delivery]) -> int:
        named, bad = _named(deliveries)
        if bad:
            await self._on_bad(bad)
        jobs, taken = await self._claim(queue, named) if named else ([], ClaimedDeliveries([]))
        self._forget(deliveries)
        needless = len(deliveries) - len(bad) - len(taken.put_back) - len(taken.jobs)
        claimed = {attempt.fence: attempt for attempt in jobs}
        attempts = [claimed[fence] for fence in named if fence in claimed]  # in the broker's order, by priority
        for attempt in attempts:
            self._held[attempt.fence] = [_without_body(delivery) for delivery in named.pop(attempt.fence)]
        self._start(attempts)
        # Messages without a job that can run now: the database has everything that is left to do.
        self.consumer.ack([*(delivery for group in named.values() for delivery in group), *(item for item, _ in bad)])
        self.needless += max(0, needless)
        self.bad += len(bad)
        await self._activity.note(queue)
        return len(attempts)

    async def _claim(
        self, queue: str, named: dict[Fence, list[Delivery]]
    ) -> tuple[list[LeasedAttempt], ClaimedDeliveries]:
        asked_at = self._clock.monotonic()
        operation = take_delivered(
            queue,
            list(named),
            owner=self._owner,
            task_names=self._task_names,
            lease=self._lease,
            is_limited=queue in self._limited,
            rules=self._rules,
        )
        async with self._attempts.claiming:
            self.may_have_unknown_leases = True  # until the reply arrives
            taken = await self._store.run(operation, patience_seconds=0)
            attempts = [LeasedAttempt(job, asked_at + self._lease.total_seconds()) for job in taken.jobs]
            self._attempts.add(attempts)
            self.may_have_unknown_leases = False
        await self._front.unblock(taken.blocked_on)
        if taken.is_any_scheduled:
            self._signals.jobs_scheduled.send()
        return attempts, taken

    def note_removed(self, attempts: list[LeasedAttempt]) -> None:
        """Acknowledge the messages of attempts that are settled or lost.

        The messages of attempts for which no slot became free wait until slots are: otherwise the broker would deliver
        others in their place, although other workers may have free slots.
        """
        late = [attempt for attempt in attempts if attempt.is_late]
        if late:
            self._read_ahead()
            self.consumer.withhold(self._messages_of(late))
        if len(late) < len(attempts):
            done = self._messages_of([attempt for attempt in attempts if not attempt.is_late])
            if done:
                self.consumer.ack(done)
            self.consumer.make_room(len(attempts) - len(late))

    def _messages_of(self, attempts: list[LeasedAttempt]) -> list[Delivery]:
        return [delivery for attempt in attempts for delivery in self._held.pop(attempt.fence, ())]

    async def _read_settings(self) -> None:
        if self._clock.monotonic() - self._settings_read_at < SETTINGS_SECONDS:
            return
        queues = list(self._names.values())
        rows = await self._store.run(queue_settings([*queues, ALL_QUEUES]), patience_seconds=0)
        limited = {settings.name for settings in rows.values() if settings.is_limited or settings.paused_at is not None}
        self._limited = frozenset(queues if ALL_QUEUES in limited else limited)
        self._settings_read_at = self._clock.monotonic()


def _prefetch(settings: RabbitmqSettings, queue: str, *, slots: int) -> int:
    """Return how many messages of a queue to hold; by default, all slots can run its jobs."""
    prefetch = settings.of(queue).prefetch
    return min(slots, MOST_PREFETCH) if prefetch is None else prefetch


def _without_body(delivery: Delivery) -> Delivery:
    """Return what is needed to acknowledge a message; the leased job has its content."""
    return delivery if len(delivery.body) < LARGE_BODY else msgspec.structs.replace(delivery, body=b"")


def _named(deliveries: list[Delivery]) -> tuple[dict[Fence, list[Delivery]], list[BadDelivery]]:
    """Decode messages; returns them by the attempt that they name, and those that cannot be read."""
    named: dict[Fence, list[Delivery]] = {}
    bad: list[BadDelivery] = []
    for delivery in deliveries:
        try:
            envelope = decode_envelope(delivery.body)
        except BadMessage as error:
            bad.append((delivery, str(error)))
        else:
            named.setdefault((envelope.task_id.lower(), envelope.attempt), []).append(delivery)
    return named, bad
