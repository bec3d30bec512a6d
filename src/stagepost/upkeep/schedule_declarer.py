"""Stops schedules that are no longer in the code of any running worker."""

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
    """Renews the declarations of this worker's schedules; the leader stops schedules that no worker declares.

    While two releases run side by side, the schedules of both fire.
    """

    def __init__(self, store: AsyncStore, leader: Leader, declared: Collection[str], *, interval: float = 60.0) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._leader = leader
        self._declared = declared
        self._undeclared: set[str] = set()

    def wake(self) -> None:
        """Ignore wake-ups: between two passes, other workers need time to renew their declarations."""

    async def run_once(self) -> list[str]:
        """Renew this worker's declarations; returns the schedules that were stopped."""
        if self._declared:
            await self._store.run(renew_declarations(self._declared))
        if not self._leader.is_leading:
            self._undeclared = set()
            return []
        # In two passes: after a pause of the whole machine, all declarations are old until each worker has run again.
        before, self._undeclared = self._undeclared, set(await self._store.run(undeclared_schedules()))
        if not before & self._undeclared:
            return []
        stopped = await self._store.run(orphan_schedules(before & self._undeclared))
        for name in stopped:
            log.warning(
                "schedule %r is stopped: no running worker declares it. To delete it, run stagepost schedules remove; "
                "to let it fire without code, run stagepost schedules resume",
                name,
            )
        return stopped
