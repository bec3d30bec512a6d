"""Attempts that were claimed before their tokens are valid."""

from __future__ import annotations

import asyncio

from stagepost.clock import monotonic
from stagepost.model.job import LeasedJob
from stagepost.worker.early_attempts import EarlyAttempts
from stagepost.worker.leased_attempts import LeasedAttempt


def attempt(number: int) -> LeasedAttempt:
    job = LeasedJob(f"job-{number}", "send", "mail", 1, 0, 0, 5, 0, 0, 0, "{}", None, None, None, "worker")
    return LeasedAttempt(job, lease_ends=float("inf"))


async def test_attempts_are_handed_over_at_their_instants_and_in_their_order() -> None:
    handed: list[tuple[LeasedAttempt, float]] = []
    are_all = asyncio.Event()

    def start(attempts: list[LeasedAttempt]) -> None:
        handed.extend((one, monotonic()) for one in attempts)
        if len(handed) == 3:
            are_all.set()

    early, now = EarlyAttempts(start), monotonic()
    instants = {attempt(number): now + delay for number, delay in enumerate((0.03, 0.01, 0.02))}
    for one, starts_at in instants.items():
        early.add(one, starts_at=starts_at)
    async with asyncio.timeout(60):
        await are_all.wait()

    assert [one for one, _ in handed] == sorted(instants, key=lambda one: instants[one])
    assert all(at >= instants[one] for one, at in handed)
    assert len(early) == 0


async def test_attempts_that_are_taken_back_are_not_handed_over() -> None:
    handed: list[LeasedAttempt] = []
    early, first, second = EarlyAttempts(handed.extend), attempt(1), attempt(2)
    early.add(first, starts_at=monotonic() + 3600)
    early.add(second, starts_at=monotonic())

    assert early.take_all() == [second, first]
    await asyncio.sleep(0)

    assert (handed, len(early)) == ([], 0)
