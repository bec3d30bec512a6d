"""Keeps jobs apart whose next crash is their last: not all that die together are guilty."""

from __future__ import annotations

import random
from datetime import timedelta

from stagepost.model.job import LeasedJob
from stagepost.model.outcome import CRASHES_ALLOWED, Snoozed
from stagepost.store.async_store import AsyncStore
from stagepost.store.leases import settle
from stagepost.store.settlement import Settlement
from stagepost.worker.flights import Flights

__all__ = ["with_one_suspect"]

SUSPECT_CRASHES = CRASHES_ALLOWED - 1
SUSPECT_SECONDS = (0.5, 0.1)
"""How long at least, and how much longer per job, suspects wait while one has its turn."""


async def with_one_suspect(jobs: list[LeasedJob], store: AsyncStore, flights: Flights) -> list[LeasedJob]:
    """Put back all suspects but one, or all while one is in flight; returns the jobs that may run."""
    suspects = [job for job in jobs if job.crashes >= SUSPECT_CRASHES]
    if not suspects:
        return jobs
    has_one = any(flight.job.crashes >= SUSPECT_CRASHES for flight in flights.all())
    others = suspects if has_one else suspects[1:]
    if not others:
        return jobs
    shortest, per_job = SUSPECT_SECONDS
    delays = [shortest + random.uniform(0, per_job * len(others)) for _ in others]  # noqa: S311 - spreads them
    changes = [Settlement.of(job, Snoozed(timedelta(seconds=delay))) for job, delay in zip(others, delays, strict=True)]
    await store.run(settle(changes), patience_seconds=0)
    return [job for job in jobs if job not in others]
