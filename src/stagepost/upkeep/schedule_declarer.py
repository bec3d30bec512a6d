"""Keeps schedules and code together: a schedule that no running worker declares fires no more."""

from __future__ import annotations

import logging
from collections.abc import Collection

from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.store.schedules import orphan_schedules, renew_declarations, undeclared_schedules
from stagepost.upkeep.leader import Leader

__all__ = ["ScheduleDeclarer"]

log = logging.getLogger(__name__)


class ScheduleDeclarer(Service):
    """Says again and again which schedules this worker's code declares; as leader, stops those that no worker declares.

    While old and new releases run side by side, every schedule of either fires.
    """

    def __init__(self, store: AsyncStore, leader: Leader, declared: Collection[str], *, interval: float = 60.0) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._leader = leader
        self._declared = declared
        self._undeclared: set[str] = set()

    def wake(self) -> None:
        """Wait all the same: between two passes other workers get the time to declare theirs."""

    async def run_once(self) -> list[str]:
        """Renew this worker's declarations; returns the schedules that were stopped."""
        if self._declared:
            await self._store.run(renew_declarations(self._declared))
        if not self._leader.is_leading:
            self._undeclared = set()
            return []
        # Found twice: after a pause of the whole machine all declarations are old, until each worker has run again.
        before, self._undeclared = self._undeclared, set(await self._store.run(undeclared_schedules()))
        if not before & self._undeclared:
            return []
        stopped = await self._store.run(orphan_schedules(before & self._undeclared))
        for name in stopped:
            log.warning(
                "schedule %r fires no more: no running worker declares it; stagepost schedules remove deletes it, "
                "stagepost schedules resume lets it fire without code",
                name,
            )
        return stopped
