"""Carried queues on top of the machine of jobs: a broker that repeats, reorders, delays and loses messages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from stagepost.model.job import LeasedJob, NewJob, OnConflict, microseconds
from stagepost.model.outcome import Completed, Outcome
from stagepost.store import sending
from stagepost.store.settlement import Fence
from tests.property.machine import LEASE, MANY, JobMachine
from tests.property.model import ALL_QUEUES, Model, ModelJob, ModelQueue
from tests.property.strategies import ANY, OUTCOMES, OWNERS, QUEUES, TASKS, wishes
from tests.property.world import World

UNKNOWN_TASK_DELAY_US = 5_000_000
PICKS = st.lists(ANY, min_size=1, max_size=6)


@dataclass
class SendingModel(Model):
    """Notes beside each job when its message was confirmed."""

    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By job: for which attempt, and when. Of no meaning once the job is not queued for that attempt any more."""

    @property
    def sent(self) -> dict[str, int]:
        return {job_id: at for job_id, (attempt, at) in self.marks.items() if self.awaits(job_id, attempt)}

    def awaits(self, job_id: str, attempt: int) -> bool:
        """Whether a job is queued, and this will be the number of its next attempt."""
        job = self.live.get(job_id)
        return job is not None and job.state == "queued" and job.attempts == attempt - 1

    def unsent(self, queue_name: str, most: int) -> list[Fence]:
        paused = [self.queues.get(name, ModelQueue()).paused_at for name in (queue_name, ALL_QUEUES)]
        if paused != [None, None]:
            return []
        sent = self.sent
        jobs = [
            job
            for job in self.live.values()
            if job.state == "queued" and job.queue_name == queue_name and job.id not in sent
        ]
        return [(job.id, job.attempts + 1) for job in sorted(jobs, key=attrgetter("claim_order"))[:most]]

    def mark_sent(self, messages: Sequence[Fence]) -> int:
        known = {(job_id, attempt) for job_id, attempt in messages if self.awaits(job_id, attempt)}
        self.marks |= {job_id: (attempt, self.now) for job_id, attempt in known}
        return len(known)

    def take(
        self, queue_name: str, messages: Sequence[Fence], *, owner: str, task_names: Sequence[str], slots: int
    ) -> dict[str, set[str]]:
        """Say what became of each job that was named."""
        awaited = sorted({job_id for job_id, attempt in messages if self.awaits(job_id, attempt)})
        if self.queues.get(queue_name, ModelQueue()).paused_at is not None:
            slots = 0
        fitting = [
            self.live[job_id]
            for job_id in awaited
            if self.live[job_id].queue_name == queue_name and self.live[job_id].task_name in task_names
        ]
        started = fitting[:slots]
        for job in started:
            self.lease(job, owner, microseconds(LEASE))
        back = set(awaited) - {job.id for job in started}
        self.put_back(job_id for job_id in back if self.live[job_id].task_name in task_names)
        for job_id in back:
            if self.live[job_id].task_name not in task_names:
                self.put_back([job_id])
                self.live[job_id].state = "scheduled"
                self.live[job_id].available_at = self.now + UNKNOWN_TASK_DELAY_US
        named = {job_id for job_id, _ in messages}
        return {
            "started": {job.id for job in started},
            "put back": back,
            "unknown": named - self.live.keys(),
            "stale": (named & self.live.keys()) - set(awaited),
        }

    def put_back(self, job_ids: Any) -> set[str]:
        queued = {job_id for job_id in job_ids if job_id in self.live and self.live[job_id].state == "queued"}
        for job_id in queued:
            self.marks.pop(job_id, None)
            self.live[job_id].updated_at = self.now
        return queued

    # ---- what the rest of the model does to marks

    def claim(
        self,
        queue_name: str,
        *,
        owner: str,
        task_names: Sequence[str],
        slots: int,
        lease_us: int,
        marks: Mapping[int, int] | None = None,
    ) -> list[str]:
        """Jobs that were sent are left to their messages."""
        everything, sent = self.live, self.sent
        self.live = {job_id: job for job_id, job in everything.items() if job_id not in sent}
        claimed = super().claim(
            queue_name, owner=owner, task_names=task_names, slots=slots, lease_us=lease_us, marks=marks
        )
        self.live = everything
        return claimed

    def _replace(self, holder: ModelJob | None, job: NewJob) -> None:
        super()._replace(holder, job)
        if holder is not None and holder.state != "running" and job.on_conflict is not OnConflict.KEEP:
            self.marks.pop(holder.id, None)

    def _end(self, job: ModelJob, state: str, *, result: str | None = None, error: str | None = None) -> None:
        super()._end(job, state, result=result, error=error)
        self.marks.pop(job.id, None)


class SendingWorld(World):
    """A world whose model knows of messages."""

    def __init__(self, url: str) -> None:
        super().__init__(url, model=SendingModel)

    def sent(self) -> dict[str, int]:
        """Which jobs the store has marked as sent, and when."""
        with self.store.transaction() as connection:
            rows = connection.execute("select id, sent_at from stagepost_job where sent_at is not null", {})
        return {str(job_id): sent_at for job_id, sent_at in rows}


class SendingMachine(JobMachine):
    """Relays, workers that take messages, and a reconciler; jobs are claimed from the database, too."""

    model: SendingModel
    world: SendingWorld

    def __init__(self, world: SendingWorld) -> None:
        super().__init__(world)
        self.broker: list[Fence] = []
        """Messages that wait in the broker."""
        self.published: list[Fence] = []
        """All that ever were: any may come again, however late."""

    @rule(
        queue_name=st.sampled_from(QUEUES),
        most=st.sampled_from([1, 3, MANY]),
        marked=st.sampled_from([math.inf, math.inf, 0, 1]),
    )
    def publish(self, queue_name: str, most: int, marked: float) -> None:
        """As a relay does; it may die, or hear of no more than some confirms, before it marks what it published."""
        found = self.same(
            lambda: [(job.id, job.attempt) for job in self.world.run(sending.unsent(queue_name, most=most))],
            lambda: self.model.unsent(queue_name, most),
        )
        self.broker += found
        self.published += found
        self._mark(found[: int(min(marked, len(found)))])

    @rule(
        owner=st.sampled_from(OWNERS),
        task_names=st.sampled_from([TASKS, TASKS[:1]]),
        outcomes=st.lists(OUTCOMES, max_size=3),
        times=st.sampled_from([1, 2]),
    )
    def carry(self, owner: str, task_names: tuple[str, ...], outcomes: list[Outcome], times: int) -> None:
        """All that can be sent arrives before it is marked; some of it has ended by then."""
        self.promote()
        self.unblock()
        for queue_name in QUEUES:
            first, known = len(self.leases), len(self.published)
            self.publish(queue_name, 3, 0)
            messages = self.published[known:]
            for _ in range(times):
                self._take(queue_name, messages, owner=owner, task_names=task_names, limited=False)
            self._settle(list(zip(self.leases[first:], outcomes, strict=False)))
            self._mark(messages)

    @rule(owner=st.sampled_from(OWNERS), name=st.sampled_from([*QUEUES, ALL_QUEUES]))
    def carry_while_paused(self, owner: str, name: str) -> None:
        """What was published before comes all the same, and waits in the store."""
        self.promote()
        for queue_name in QUEUES:
            self.publish(queue_name, 3, math.inf)
        self.pause_or_resume(name, resumes=False)
        for queue_name in QUEUES:
            self.deliver(owner, queue_name, 3, repeats=False, task_names=TASKS, limited=name == ALL_QUEUES)
            self.publish(queue_name, 3, math.inf)
        self.pause_or_resume(name, resumes=True)

    @rule(wish=wishes(), on_conflict=st.sampled_from(OnConflict))
    def change_what_was_sent(self, wish: dict[str, Any], on_conflict: OnConflict) -> None:
        """A job is asked for again while its message is on its way."""
        wish |= {"unique_key": "u3", "unique_for_us": None, "limit_key": None, "limit": None}
        self.enqueue([wish | {"delay_us": 0}], "alone", past=False)
        self.publish(wish["queue_name"], MANY, math.inf)
        self.enqueue([wish | {"on_conflict": on_conflict}], "alone", past=False)

    @precondition(lambda self: self.published)
    @rule(which=PICKS)
    def mark_late(self, which: list[int]) -> None:
        """As a relay does that was paused between the confirm and its mark; or a second one."""
        self._mark([self._published(number) for number in which])

    def _mark(self, messages: list[Fence]) -> None:
        self.same(lambda: self.world.run(sending.mark_sent(messages)), lambda: self.model.mark_sent(messages))

    @precondition(lambda self: self.broker)
    @rule(
        owner=st.sampled_from(OWNERS),
        queue_name=st.sampled_from(QUEUES),
        number=st.integers(1, 4),
        repeats=st.booleans(),
        task_names=st.sampled_from([TASKS, TASKS, TASKS[:1]]),
        limited=st.booleans(),
    )
    def deliver(
        self, owner: str, queue_name: str, number: int, repeats: bool, task_names: tuple[str, ...], limited: bool
    ) -> None:
        """As a worker does; its acknowledgement may be lost, then the messages come again."""
        queue_of = {job.id: job.queue_name for job in self.model.live.values()}
        mine = [message for message in self.broker if queue_of.get(message[0], queue_name) == queue_name][:number]
        self._take(queue_name, mine, owner=owner, task_names=task_names, limited=limited)
        if not repeats:
            self.broker = [message for message in self.broker if message not in mine]

    @precondition(lambda self: self.published)
    @rule(owner=st.sampled_from(OWNERS), queue_name=st.sampled_from(QUEUES), which=PICKS)
    def deliver_anything(self, owner: str, queue_name: str, which: list[int]) -> None:
        """Duplicates, messages of earlier attempts and ended jobs, and those of another queue."""
        messages = [self._published(number) for number in which]
        self._take(queue_name, messages, owner=owner, task_names=TASKS, limited=False)

    def _take(
        self, queue_name: str, messages: list[Fence], *, owner: str, task_names: tuple[str, ...], limited: bool
    ) -> None:
        leased: list[LeasedJob] = []
        wanted: dict[str, Any] = {"owner": owner, "task_names": task_names}
        slots = self.model.room(queue_name, len(messages)) if limited else len(messages)

        def real() -> dict[str, set[str]]:
            taken = self.world.run(
                sending.take_delivered(queue_name, messages, lease=LEASE, is_limited=limited, **wanted)
            )
            leased.extend(taken.jobs)
            assert len({job.id for job in leased}) == len(leased), "a job was leased twice at once"
            return {
                "started": {job.id for job in leased},
                "put back": set(taken.put_back),
                "unknown": set(taken.unknown),
                "stale": set(taken.stale),
            }

        self.same(real, lambda: self.model.take(queue_name, messages, slots=slots, **wanted))
        for lease in leased:
            job = self.model.live[lease.id]
            seen = (lease.attempt, lease.failures, lease.crashes, lease.payload, lease.context, lease.owner)
            assert seen == (job.attempts, job.failures, job.crashes, job.payload, job.context, job.locked_by)
        self.leases += leased

    @rule(all_of_them=st.booleans())
    def lose_messages(self, all_of_them: bool) -> None:
        """Somebody purges a queue, or the broker loses its disk."""
        self.broker = [] if all_of_them else self.broker[1::2]

    @rule(queue_name=st.sampled_from(QUEUES), older=st.sampled_from([0, 10]), rightly=st.booleans())
    def reconcile(self, queue_name: str, older: int, rightly: bool) -> None:
        """Those whose message is gone; or, needlessly, all: that costs messages, never jobs."""
        found = self.same(
            lambda: {
                (job.id, job.attempt, job.age_us)
                for job in self.world.run(sending.sent_jobs(queue_name, older=timedelta(seconds=older), most=MANY))
            },
            lambda: {
                (job_id, self.model.live[job_id].attempts + 1, self.model.now - at)
                for job_id, at in self.model.sent.items()
                if self.model.live[job_id].queue_name == queue_name and at <= self.model.now - older * 1_000_000
            },
        )
        lost = [job_id for job_id, attempt, _ in sorted(found) if not rightly or (job_id, attempt) not in self.broker]
        self._put_back(lost)

    @rule(queue_name=st.sampled_from(QUEUES))
    def reconcile_what_was_just_sent(self, queue_name: str) -> None:
        """A message that was sent a moment ago does not count as lost."""
        self.publish(queue_name, MANY, math.inf)
        self.reconcile(queue_name, 10, rightly=True)

    @precondition(lambda self: self.published)
    @rule(which=PICKS)
    def put_back_anything(self, which: list[int]) -> None:
        """As a reconciler does that was paused after it looked."""
        self._put_back([self._published(number)[0] for number in which])

    def _put_back(self, job_ids: list[str]) -> None:
        self.same(lambda: set(self.world.run(sending.put_back(job_ids))), lambda: self.model.put_back(job_ids))

    def _published(self, number: int) -> Fence:
        return self.published[-1 - number % len(self.published)]

    @invariant()
    def what_is_marked_is_as_the_model_says(self) -> None:
        assert self.world.sent() == self.model.sent, (
            "jobs are marked as sent that should not be, or the other way round"
        )

    def teardown(self) -> None:
        """The broker loses everything; what was sent is found, sent again, delivered twice, and runs once."""
        if self.is_sound:
            self.broker = []
            for queue_name in QUEUES:
                self.pause_or_resume(queue_name, resumes=True)
                self.reconcile(queue_name, 0, rightly=True)
            self.pause_or_resume(ALL_QUEUES, resumes=True)
            for queue_name in QUEUES:
                self.publish(queue_name, MANY, math.inf)
                for owner in OWNERS:
                    self._take(queue_name, list(self.broker), owner=owner, task_names=TASKS, limited=False)
                self._settle([(lease, Completed()) for lease in self.leases if self.model.holds(lease)])
                self.broker = []
            self.what_is_marked_is_as_the_model_says()
            assert self.model.sent == {}, "all that was sent was delivered"
        super().teardown()
