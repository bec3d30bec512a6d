"""Finds jobs whose message was lost, and sends them again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.errors import TransportError
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.model.alert import Alert, AlertKind
from stagepost.model.job import microseconds
from stagepost.store.queue_observations import QueueObservation, declare_patience, observe_queue
from stagepost.store.sending import lost_jobs, put_back_lost, read_clock
from stagepost.store.workers import list_workers
from stagepost.transport.rabbitmq.admin import Depth, depths
from stagepost.transport.rabbitmq.topology import topology_of
from stagepost.upkeep.alerting import AlertingRunner
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.sent_job_requeuer import UNCARRIED, requeue_uncarried
from stagepost.upkeep.threads import in_thread

__all__ = ["Finding", "QueueCheck", "Reconciler", "lost_for"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 5000
SLOW_SECONDS = 10.0
"""How much longer than usual the time between two passes may be, on a busy machine, for them to count as one watch."""
NONE = timedelta(0)
NO_QUEUES: Mapping[str, timedelta | None] = {}


class Finding(msgspec.Struct, frozen=True):
    """Lost jobs of one queue."""

    queue: str
    why: str
    lost: int
    """Number of jobs whose message was lost; they are sent again."""
    unanswered: int = 0
    """Number of jobs that became dead letters instead, because an external program never answered."""


class QueueCheck(msgspec.Struct, frozen=True):
    """The state of a queue at the broker, and the conclusion from it."""

    depth: Depth | None
    channel: QueueObservation
    lost_after: timedelta | None
    """Messages that were sent longer ago are lost; None if that is not certain."""
    heard: int = 0
    """Number of workers of the queue that reported recently."""


def lost_for(
    depth: Depth | None,
    channel: QueueObservation,
    settings: RabbitmqSettings,
    *,
    heard: int = 0,
) -> timedelta | None:
    """Decide which messages of a queue are lost: those sent longer ago than this; None if that is not certain.

    While messages wait in the queue, any message may be among them. Once the queue has been empty for a while, a
    message that is not lost must be with a consumer. Our workers claim their messages at once, so it is lost if all
    consumers are workers that were `heard` from meanwhile. If other programs consume, or the broker does not report the
    queue's length, only a long silence shows that no program works on the message: the channel's `patience`, which is
    how long a program that runs remote tasks may keep a request without a report, or the quiet time. Such a program may
    have ended after it answered, and this process may hold the answer.
    """
    soon, late = timedelta(seconds=settings.lost_after_seconds), timedelta(seconds=settings.quiet_time_seconds)
    patience = channel.patience
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
    """Checks every carried queue, on the leader for the broker."""

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        signals: Signals,
        *,
        url: str,
        settings: RabbitmqSettings,
        queues: Sequence[str],
        patience: Mapping[str, timedelta | None] = NO_QUEUES,
        has_answers: Callable[[str], bool] = lambda _queue: False,
        alerts: AlertingRunner,
        is_by_hand: bool = False,
        only_looks: bool = False,
    ) -> None:
        """`patience` maps the queues that this process knows to how long an external program may be silent, or None.

        `has_answers` says whether this process holds answers that may belong to requests of a queue. A single pass
        that somebody starts (`is_by_hand`) continues from the observations of other processes.
        """
        super().__init__(interval=max(0.2, min(5.0, settings.lost_after_seconds / 3)))
        self.resent = 0
        self.unanswered = 0
        self.passes = 0
        """Number of passes in which the broker reported the state of its queues."""
        self._store = store
        self._leader = leader
        self._url = url
        self._settings = settings
        self._queues = queues
        self._undeclared = dict(patience)
        self._signals = signals
        self._has_answers = has_answers
        self._alerts = alerts
        self._is_by_hand = is_by_hand
        self._only_looks = only_looks
        self.looks: dict[str, QueueCheck] = {}
        """What the last pass saw of each queue, while this process leads and the broker answers."""

    async def run_once(self) -> list[Finding]:
        """Check all queues once; the relay then sends lost jobs again."""
        if self._undeclared:
            await self._store.run(declare_patience(self._undeclared))
            self._undeclared = {}
        if not self._leader.is_leading:
            self.looks.clear()
            return []
        # Before the check: messages that are sent during it, however long it takes, are not in question.
        began = await self._store.run(read_clock())
        found, answers = await self._depths()
        findings = []
        for queue, depth in found.items():
            findings += await self._judge(queue, depth, began, answers=answers)
        if not self._only_looks:
            uncarried = await requeue_uncarried(self._store, self._settings.carries, began)
            findings += [Finding(queue, UNCARRIED, len(jobs)) for queue, jobs in uncarried.items()]
        if findings:
            self._signals.messages_ready.send()
        return findings

    async def _judge(self, queue: str, depth: Depth | None, began: int, *, answers: int) -> list[Finding]:
        # After the broker was asked: an answer that left it meanwhile is here, or its job is settled.
        answers += int(self._has_answers(queue))
        heard = 0 if depth is None else await self._heard(queue)
        if depth is not None and heard and not depth.consumers:
            # RabbitMQ reports no messages and no consumers for a quorum queue whose leader is missing or slow.
            depth = None
        is_empty = depth is not None and depth.ready == 0
        # Before its first pass a process does not know which messages were there, and which consumers took them.
        goes_on = self._is_by_hand or queue in self.looks
        gap = timedelta(seconds=self._settings.lost_after_seconds + SLOW_SECONDS) if goes_on else NONE
        channel = await self._store.run(observe_queue(queue, is_empty=is_empty, has_answers=answers > 0, gap=gap))
        if depth is not None and channel.patience is not None:
            depth = Depth(depth.ready + answers, depth.consumers)
        older = lost_for(depth, channel, self._settings, heard=heard)
        self.looks[queue] = QueueCheck(depth, channel, older, heard)
        if older is None:
            return []
        sends = None if channel.patience is None else self._settings.max_sends
        return await self._send_again(queue, began - microseconds(older), _why(depth), sends)

    async def _heard(self, queue: str) -> int:
        """Count the workers of a queue that have reported since messages could have reached them."""
        latest = self._settings.lost_after_seconds * 1e6
        workers = await self._store.run(list_workers())
        return sum(queue in worker.queues and worker.silent_us < latest for worker in workers)

    async def _depths(self) -> tuple[dict[str, Depth | None], int]:
        """Read the state of the queues, and how many answers to remote tasks wait at the broker."""
        plans = topology_of(self._settings, self._queues).queues
        wanted = [plan for plan in plans if plan.carries or plan.name == self._settings.answers]
        try:
            found = await in_thread(depths, self._url, wanted)
        except TransportError:
            self.looks.clear()
            return {}, 0  # the relay logs it; without the broker nothing is certain
        self.passes += 1
        answers = found.get(self._settings.answers)
        return {plan.carries: found[plan.name] for plan in plans if plan.carries}, answers.ready if answers else 0

    async def _send_again(self, queue: str, sent_before: int, why: str, sends: int | None) -> list[Finding]:
        if self._only_looks:
            lost = await self._store.run(lost_jobs(queue, sent_before=sent_before, most=MOST_AT_ONCE))
            return [Finding(queue, why, len(lost))] if lost else []
        found = await self._alerts.run(
            put_back_lost(queue, sent_before=sent_before, most=MOST_AT_ONCE, sends=sends),
            lambda found: Alert.of_jobs(
                AlertKind.UNANSWERED, found.unanswered, f"sent and never answered; max_sends is {sends}", queue=queue
            ),
        )
        again, unanswered = len(found.again), len(found.unanswered)
        if not again + unanswered:
            return []
        self.resent += again
        self.unanswered += unanswered
        if again:
            log.warning("queue %s: %d jobs are sent again because their messages were lost: %s", queue, again, why)
        if unanswered:
            self._signals.batches_touched.send(found.batches)
            log.error(
                "queue %s: %d jobs became dead letters: they were sent %s times and never answered",
                queue,
                unanswered,
                sends,
            )
        if again + unanswered >= MOST_AT_ONCE:
            self.wake()
        return [Finding(queue, why, again, unanswered)]


def _why(depth: Depth | None) -> str:
    if depth is None:
        return "nothing was taken from its queue for the quiet time"
    return "its queue is empty"
