"""Unblocks the next jobs of a limit when others have ended."""

from __future__ import annotations

from collections.abc import Iterable

from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.model.limits import LimitRules, limit_name
from stagepost.store.unblocking import names_with_blocked_jobs, unblock_next

__all__ = ["LimitOpener"]

IDLE_SECONDS = 3600.0
MOST_AT_ONCE = 500


class LimitOpener(Service):
    """Takes the limit keys of jobs that were settled here, and fills the slots that they left.

    This is not part of the transaction that settles them, because others would wait for the limit's lock. If the
    process dies in between, the next sweep of any worker's promoter fills the slots.
    """

    def __init__(self, store: AsyncStore, signals: Signals, *, rules: LimitRules) -> None:
        super().__init__(interval=IDLE_SECONDS)
        self._store = store
        self._rules = rules
        self._signals = signals
        self._names: set[str] = set()
        self._opening = 0

    @property
    def pending(self) -> int:
        """How many limits are to be checked, or are being checked."""
        return len(self._names) + self._opening

    def note(self, limit_keys: Iterable[str]) -> None:
        """Check these limits soon: jobs with their keys have ended, and that is committed."""
        self._names.update(map(limit_name, limit_keys))
        if self._names:
            self.wake()

    async def run_once(self) -> int:
        """Check the limits that were noted; returns how many jobs were unblocked."""
        names = sorted(self._names)[:MOST_AT_ONCE]
        # Removed before the check: a job that ends during it asks for another check.
        self._names.difference_update(names)
        self._opening = len(names)
        try:
            through = await self._open(names) if names else 0
        except BaseException:
            self._names.update(names)
            raise
        finally:
            self._opening = 0
        if through:
            self._signals.jobs_ready.send()
        if self._names:
            self.wake()
        return through

    async def _open(self, names: list[str]) -> int:
        waited_for = await self._store.run(names_with_blocked_jobs(names))
        return await self._store.run(unblock_next(waited_for, self._rules)) if waited_for else 0
