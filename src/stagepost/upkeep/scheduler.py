"""Fires schedules, once per due time however many schedulers run."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta

from stagepost.database.async_store import AsyncStore
from stagepost.database.statement import Operation
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.store.schedules import Fired, fire_due, next_schedule_due, put_schedule
from stagepost.task import ScheduleSpec
from stagepost.upkeep.leader import Leader

__all__ = ["Scheduler", "declaration_of", "declare"]

log = logging.getLogger(__name__)

LONGEST_SECONDS = 1.0
NONE_SECONDS = 5.0
"""Interval while there is no schedule: another process may add one."""
SHORTEST_SECONDS = 0.01


class Scheduler(Service):
    """Enqueues the jobs of schedules that are due. Sleeps until the next is due, at most a second if there is one."""

    def __init__(self, store: AsyncStore, leader: Leader, signals: Signals) -> None:
        super().__init__(interval=LONGEST_SECONDS)
        self._store = store
        self._leader = leader
        self._signals = signals

    async def run_once(self) -> Fired | None:
        """Fire schedules that are due."""
        if not self._leader.is_leading:
            self.interval = LONGEST_SECONDS
            return None
        # First a read, which needs no transaction and no lock: usually nothing is due.
        due = await self._store.run(next_schedule_due())
        if due is None or due > timedelta(0):
            self._sleep_until(due)
            return Fired((), {}, is_more=False)
        fired = await self._store.run(fire_due())
        for name, error in fired.errors.items():
            log.error("schedule %r cannot fire: %s", name, error)
        if fired.runs:
            self._signals.jobs_ready.send()
        if fired.is_more:
            self.interval = 0.0
        else:
            self._sleep_until(await self._store.run(next_schedule_due()))
        return fired

    def _sleep_until(self, due: timedelta | None) -> None:
        self.interval = (
            NONE_SECONDS if due is None else min(max(due.total_seconds(), SHORTEST_SECONDS), LONGEST_SECONDS)
        )


async def declare(store: AsyncStore, schedules: Iterable[ScheduleSpec]) -> None:
    """Store the schedules that the code declares; an unchanged schedule keeps its next due time."""
    for schedule in schedules:
        await store.run(declaration_of(schedule))


def declaration_of(schedule: ScheduleSpec) -> Operation[None]:
    """Build the operation that stores one schedule."""
    return put_schedule(
        schedule.name,
        rule=schedule.rule,
        template=schedule.template,
        time_zone=schedule.time_zone,
        catch_up=schedule.catch_up,
    )
