"""How many jobs run at once, per task and per key, across all workers."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from stagepost import App, RateLimit, RetryPolicy, Worker
from stagepost.loops.signals import Signals
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import JobState
from stagepost.store import jobs
from stagepost.store.counting import count_by_state
from stagepost.store.limits import block_front, claim_checked
from stagepost.worker.front import FrontClearer
from stagepost.worker.limit_opener import LimitOpener
from tests.acceptance.helpers import LIMIT, work, work_async

LEASE = timedelta(seconds=60)


class Crowd:
    """Counts who is inside at once, by name."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self.total = 0
        self._inside: Counter[str] = Counter()
        self._lock = threading.Lock()

    def enter(self, name: str) -> None:
        with self._lock:
            self.total += 1
            self._inside[name] += 1
            self.most[name] = max(self.most[name], self._inside[name])

    def leave(self, name: str) -> None:
        with self._lock:
            self._inside[name] -= 1

    async def visit(self, name: str) -> None:
        """Stay for a few turns of the loop, so that others would meet it."""
        self.enter(name)
        for _ in range(20):
            await asyncio.sleep(0)
        self.leave(name)


async def test_a_task_runs_no_more_jobs_at_once_than_it_allows_over_two_workers(app: App) -> None:
    crowd, is_crowded = Crowd(), asyncio.Event()

    @app.task(max_running=2)
    async def scarce(number: int) -> None:
        await crowd.visit("scarce")

    @app.task
    async def plenty(number: int) -> None:
        crowd.enter("plenty")
        if crowd.most["plenty"] > 2:
            is_crowded.set()
        await is_crowded.wait()
        crowd.leave("plenty")

    app.enqueue_many([task.job(number) for number in range(12) for task in (scarce, plenty)])

    await asyncio.gather(work_async(app), work_async(app))

    assert crowd.total == 24
    assert crowd.most["scarce"] <= 2
    assert crowd.most["plenty"] > 2


def test_a_limit_by_key_counts_each_key_apart(app: App) -> None:
    crowd = Crowd()

    @app.task(max_running=1, limit_by=lambda user, *_: user)
    async def sync(user: str, number: int) -> None:
        await crowd.visit(user)

    app.enqueue_many([sync.job(user, number) for number in range(4) for user in ("ada", "bob", "cyd")])

    work(app)

    assert crowd.total == 12
    assert crowd.most == {"ada": 1, "bob": 1, "cyd": 1}


def test_a_failed_job_frees_its_slot_for_the_next(app: App) -> None:
    ran: list[int] = []

    @app.task(max_running=1, retry=RetryPolicy(first_delay=timedelta(hours=1), longest_delay=timedelta(hours=1)))
    def fragile(number: int) -> None:
        ran.append(number)
        raise OSError("down")

    for number in range(3):
        fragile.enqueue(number)

    work(app)

    assert ran == [0, 1, 2]


@contextmanager
def second_app(app: App) -> Iterator[App]:
    """The same database, and other code."""
    second = App(settings=app.settings)
    yield second
    second.close()


def test_a_limit_that_was_lifted_or_changed_in_the_code_holds_for_jobs_that_wait(app: App) -> None:
    crowd = Crowd()

    async def sync(user: str) -> None:
        await crowd.visit(user)

    before = app.task(max_running=1, name="sync")(sync)
    for _ in range(12):
        before.enqueue("ada")
    rules = app.registry.limit_rules
    app.store.run(claim_checked("default", owner="gone", task_names=["sync"], slots=9, lease=LEASE, rules=rules))
    assert Counter(job.state for job in app.client.jobs()) == {"running": 1, "blocked": 8, "queued": 3}

    with second_app(app) as changed:
        changed.task(max_running=3, name="sync")(sync)
        work(changed)

    assert crowd.total == 11  # but for the one that a worker left behind
    assert crowd.most["ada"] == 2


def test_jobs_start_even_if_the_event_that_a_slot_is_free_was_lost(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    @app.task(max_running=1)
    async def scarce(number: int) -> None:
        ran.append(number)

    app.enqueue_many([scarce.job(number) for number in range(5)])

    async def main() -> None:
        # As if the process had died before the finisher told anybody.
        monkeypatch.setattr(LimitOpener, "note", lambda *_: None)
        worker = Worker(app)
        async with asyncio.timeout(LIMIT):
            await worker.run(until_idle=True)

    asyncio.run(main())

    assert ran == [0, 1, 2, 3, 4]


def test_jobs_that_wait_for_their_rate_take_no_slots_and_no_further_attempts(app: App) -> None:
    ran: list[str] = []

    @app.task(rate_limit=RateLimit("provider", per_second=1 / 3600, burst=2))
    async def send(number: int) -> None:
        ran.append("send")

    @app.task
    async def plain() -> None:
        ran.append("plain")

    app.enqueue_many([send.job(number) for number in range(290)])
    plain.enqueue()

    work(app)

    assert Counter(ran) == {"send": 2, "plain": 1}
    assert Counter(job.state for job in app.client.jobs(limit=500)) == {"completed": 3, "blocked": 288}
    assert {job.attempt for job in app.client.jobs(limit=500, states=[JobState.BLOCKED])} == {0}
    assert len(app.client.jobs(limit=500, states=[JobState.QUEUED])) == 0


def test_jobs_start_at_their_rate_and_a_worker_stays_until_the_next_token(app: App) -> None:
    ran: list[int] = []

    @app.task(rate_limit=RateLimit("provider", per_second=20))
    async def send(number: int) -> None:
        ran.append(number)

    app.enqueue_many([send.job(number) for number in range(8)])

    work(app)

    assert sorted(ran) == list(range(8))
    assert {job.attempt for job in app.client.jobs()} == {1}


async def test_a_job_that_is_claimed_before_its_token_is_valid_starts_then_or_is_given_back(app: App) -> None:
    ran: list[int] = []

    @app.task(rate_limit=RateLimit("provider", per_second=10.5))  # so that the second token is valid within 100 ms
    async def send(number: int) -> None:
        ran.append(number)

    app.enqueue_many([send.job(number) for number in range(2)])
    worker = Worker(app)

    assert await worker.parts.claimer.run_once() == 2
    await worker.parts.executor.drain(LIMIT)
    assert ran == [0]
    assert worker.parts.executor.give_back_late() == 0  # it does not wait for a slot
    assert worker.parts.executor.give_back_ready() == 1
    await worker.parts.finisher.run_once()

    assert Counter(job.state for job in app.client.jobs()) == {"completed": 1, "queued": 1}
    await work_async(app)
    assert ran == [0, 1]


async def test_the_promoter_is_woken_when_the_claimer_schedules_jobs_for_their_tokens(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(rate_limit=RateLimit("provider", per_second=2))
    async def send(number: int) -> None: ...

    app.enqueue_many([send.job(number) for number in range(9)])
    worker, woken = Worker(app), []
    assert worker.parts.signals.jobs_scheduled.send == worker.parts.promoter.wake
    monkeypatch.setattr(worker.parts.signals.jobs_scheduled, "send", lambda: woken.append("by letting through"))

    await worker.parts.claimer.run_once()
    await worker.parts.executor.drain(LIMIT)
    assert Counter(job.state for job in app.client.jobs())[JobState.SCHEDULED] == 4
    assert woken == ["by letting through"]


def test_jobs_of_an_unknown_task_start_when_a_worker_knows_it(app: App) -> None:
    ran: list[str] = []

    @app.task
    async def known() -> None: ...

    with second_app(app) as newer:

        async def added() -> None:
            ran.append("added")

        task = newer.task(name="added")(added)
        for _ in range(3):
            task.enqueue()
        app.store.run(block_front("default", app.registry.limit_rules))
        work(app)
        assert Counter(job.blocked_on for job in app.client.jobs()) == {"task:added": 3}

        work(newer)

    assert ran == ["added"] * 3


async def test_a_slow_claim_clears_the_front_and_a_quick_one_does_not(app: App) -> None:
    @app.task
    async def known() -> None: ...

    app.store.run(jobs.enqueue_many([NewJob(id=new_id(), task_name="unknown", payload="{}") for _ in range(1500)]))
    clearer = FrontClearer(app.async_store, app.registry.limit_rules, app.clock, Signals())

    assert not await clearer.clear("default", frozenset(), is_slow=False)
    assert app.store.run(count_by_state())[JobState.BLOCKED] == 0
    assert await clearer.clear("default", frozenset(), is_slow=True)
    assert app.store.run(count_by_state())[JobState.BLOCKED] == 1500
    assert not await clearer.clear("default", frozenset(), is_slow=True)
