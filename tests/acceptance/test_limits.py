"""How many jobs run at once: per task and per key, over all workers."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta

from stagepost import App, RetryPolicy
from tests.acceptance.helpers import work, work_async


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


def test_a_failed_job_leaves_its_place_to_the_next(app: App) -> None:
    ran: list[int] = []

    @app.task(max_running=1, retry=RetryPolicy(first_delay=timedelta(hours=1), longest_delay=timedelta(hours=1)))
    def fragile(number: int) -> None:
        ran.append(number)
        raise OSError("down")

    for number in range(3):
        fragile.enqueue(number)

    work(app)

    assert ran == [0, 1, 2]
