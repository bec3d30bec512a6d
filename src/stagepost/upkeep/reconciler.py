"""Finds messages that got lost, and lets their jobs be sent again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

import msgspec

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.errors import TransportError
from stagepost.loops.service import Service
from stagepost.model.alert import Alert, AlertKind
from stagepost.model.job import microseconds
from stagepost.store.leaders import list_leaders
from stagepost.store.queue_observations import QueueObservation, declare_patience, forget_channels, look_at
from stagepost.store.sending import lost_jobs, put_back_lost, read_clock, sent_queues
from stagepost.store.workers import list_workers
from stagepost.transport.rabbitmq.admin import Depth, depths
from stagepost.transport.rabbitmq.topology import topology_of
from stagepost.upkeep.alarm import AlertingRunner
from stagepost.upkeep.leader import BROKER, Leader
from stagepost.upkeep.threads import in_thread

__all__ = ["Finding", "Look", "Reconciler", "Uncarried", "lost_for"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 5000
SLOW_SECONDS = 10.0
"""How much longer than usual the time between looks may be, on a busy machine, before they say nothing of it."""
FORGOTTEN = timedelta(hours=1)
"""How long no broker is used before what was known of its queues is of no use any more."""
NONE = timedelta(0)
NO_QUEUES: Mapping[str, timedelta | None] = {}
UNCARRIED = "the broker does not carry its queue any more"


class Finding(msgspec.Struct, frozen=True):
    """What a look at one queue found."""

    queue: str
    why: str
    lost: int
    """Jobs whose message is gone; they are sent again."""
    given_up: int = 0
    """Those that became dead letters instead: an external program was sent them often enough."""


class Look(msgspec.Struct, frozen=True):
    """What was seen of a queue, and what follows."""

    depth: Depth | None
    channel: QueueObservation
    lost_after: timedelta | None
    """Messages sent longer ago are lost; None if none is for sure."""
    heard: int = 0
    """How many workers of the queue were heard from lately."""


def lost_for(
    depth: Depth | None,
    channel: QueueObservation,
    settings: RabbitmqSettings,
    *,
    heard: int = 0,
) -> timedelta | None:
    """Decide from when on messages of a queue are lost: those sent longer ago than this; None if none is for sure.

    While messages wait in the queue, all others may wait, too. Once it is seen empty for a while, a message that is
    not lost must be with a consumer, and our workers claim what they have at once: it is lost if all consumers are
    workers that were `heard` from meanwhile. Where others consume, or the broker does not tell how many wait, only a
    long silence says that nobody works on it: as long as a program that runs remote tasks may have a request without
    a word, which is the channel's `patience`, or the quiet time. Such a program may have gone, and its answer be here
    in our hands.
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
    """Looks at every queue now and then; only the leader does."""

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        *,
        url: str,
        settings: RabbitmqSettings,
        queues: Sequence[str],
        patience: Mapping[str, timedelta | None] = NO_QUEUES,
        on_found: Callable[[], None] = lambda: None,
        has_answers: Callable[[str], bool] = lambda _queue: False,
        alarm: AlertingRunner | None = None,
        is_by_hand: bool = False,
        only_looks: bool = False,
    ) -> None:
        """`patience` says of the queues that this process knows how long an external program may be silent, or None.

        `has_answers` says whether this process has some in its hands that may be to requests of a queue. Somebody who
        looks once, by hand, goes on from what others saw.
        """
        super().__init__(interval=max(0.2, min(5.0, settings.lost_after_seconds / 3)))
        self.resent = 0
        self.given_up = 0
        self.passes = 0
        """How often the broker has said how its queues stand."""
        self._store = store
        self._leader = leader
        self._url = url
        self._settings = settings
        self._queues = queues
        self._undeclared = dict(patience)
        self._on_found = on_found
        self._has_answers = has_answers
        self._alarm = alarm or AlertingRunner(store)
        self._is_by_hand = is_by_hand
        self._only_looks = only_looks
        self.looks: dict[str, Look] = {}
        """What the last pass saw of each queue, since this process leads and the broker answers."""
        self.on_ended: Callable[[Iterable[str | None]], None] = lambda _batches: None
        """Told the batches of jobs that it gave up."""

    async def run_once(self) -> list[Finding]:
        """Look once; what was lost is to be sent again afterwards."""
        if self._undeclared:
            await self._store.run(declare_patience(self._undeclared))
            self._undeclared = {}
        if not self._leader.is_leading:
            self.looks.clear()
            return []
        # Before the look: what is sent while we look, however long that takes, is not in question.
        began = await self._store.run(read_clock())
        found, answers = await self._depths()
        findings = []
        for queue, depth in found.items():
            findings += await self._judge(queue, depth, began, answers=answers)
        if not self._only_looks:
            uncarried = await put_back_uncarried(self._store, self._settings.carries, began)
            findings += [Finding(queue, UNCARRIED, len(jobs)) for queue, jobs in uncarried.items()]
        if findings:
            self._on_found()
        return findings

    async def _judge(self, queue: str, depth: Depth | None, began: int, *, answers: int) -> list[Finding]:
        # Asked after the broker: what was taken from there meanwhile is here, or its job is settled.
        answers += int(self._has_answers(queue))
        heard = 0 if depth is None else await self._heard(queue)
        if depth is not None and heard and not depth.consumers:
            # A quorum queue without a leader, or with a slow one, has no messages and no consumers, RabbitMQ says.
            depth = None
        is_empty = depth is not None and depth.ready == 0
        # What was there before the first look of its own, and who took it since, a process cannot know.
        goes_on = self._is_by_hand or queue in self.looks
        gap = timedelta(seconds=self._settings.lost_after_seconds + SLOW_SECONDS) if goes_on else NONE
        channel = await self._store.run(look_at(queue, is_empty=is_empty, has_answers=answers > 0, gap=gap))
        if depth is not None and channel.patience is not None:
            depth = Depth(depth.ready + answers, depth.consumers)
        older = lost_for(depth, channel, self._settings, heard=heard)
        self.looks[queue] = Look(depth, channel, older, heard)
        if older is None:
            return []
        sends = None if channel.patience is None else self._settings.max_sends
        return await self._send_again(queue, began - microseconds(older), _why(depth), sends)

    async def _heard(self, queue: str) -> int:
        """Count the workers of a queue whose loop has turned since messages could have come to them."""
        latest = self._settings.lost_after_seconds * 1e6
        workers = await self._store.run(list_workers())
        return sum(queue in worker.queues and worker.silent_us < latest for worker in workers)

    async def _depths(self) -> tuple[dict[str, Depth | None], int]:
        """Ask how queues stand, and how many answers to remote tasks wait for us."""
        plans = topology_of(self._settings, self._queues).queues
        wanted = [plan for plan in plans if plan.carries or plan.name == self._settings.answers]
        try:
            found = await in_thread(depths, self._url, wanted)
        except TransportError:
            self.looks.clear()
            return {}, 0  # said by those who need the broker; while it is away nothing can be known
        self.passes += 1
        answers = found.get(self._settings.answers)
        return {plan.carries: found[plan.name] for plan in plans if plan.carries}, answers.ready if answers else 0

    async def _send_again(self, queue: str, sent_before: int, why: str, sends: int | None) -> list[Finding]:
        if self._only_looks:
            lost = await self._store.run(lost_jobs(queue, sent_before=sent_before, most=MOST_AT_ONCE))
            return [Finding(queue, why, len(lost))] if lost else []
        found = await self._alarm.run(
            put_back_lost(queue, sent_before=sent_before, most=MOST_AT_ONCE, sends=sends),
            lambda found: Alert.of_jobs(
                AlertKind.UNANSWERED, found.given_up, f"sent and never answered; max_sends is {sends}", queue=queue
            ),
        )
        again, given_up = len(found.again), len(found.given_up)
        if not again + given_up:
            return []
        self.resent += again
        self.given_up += given_up
        if again:
            log.warning("queue %s: %d jobs are sent again, their messages are lost: %s", queue, again, why)
        if given_up:
            self.on_ended(found.batches)
            log.error("queue %s: %d jobs became dead letters: sent %s times, never answered", queue, given_up, sends)
        if again + given_up >= MOST_AT_ONCE:
            self.wake()
        return [Finding(queue, why, again, given_up)]


class Uncarried(Service):
    """Where no broker is used: puts back what was sent while one was, so that workers find it in the database.

    While some worker does use one, as during a deployment, what is carried is that one's business.
    """

    def __init__(
        self,
        store: AsyncStore,
        leader: Leader,
        *,
        interval: float = 5.0,
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
        if any(leadership.name == BROKER for leadership in await self._store.run(list_leaders())):
            return 0
        await self._store.run(forget_channels(silent=FORGOTTEN))
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
            back = await store.run(put_back_lost(queue, sent_before=before, most=MOST_AT_ONCE))
            found.setdefault(queue, []).extend(back.again)
            if len(back.again) < MOST_AT_ONCE:
                log.info("queue %s: %d jobs that were sent go back: %s", queue, len(found[queue]), UNCARRIED)
                break
    return {queue: jobs for queue, jobs in found.items() if jobs}


def _why(depth: Depth | None) -> str:
    if depth is None:
        return "nothing was taken from its queue for the quiet time"
    return "its queue is empty"
