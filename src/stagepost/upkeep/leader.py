"""Elects the one process that does the upkeep which need not be done twice."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from stagepost.clock import Clock
from stagepost.store.async_store import AsyncStore
from stagepost.store.leaders import lead, resign
from stagepost.upkeep.service import Service

__all__ = ["TERM", "Leader"]

log = logging.getLogger(__name__)

NAME = "upkeep"
TERM = timedelta(seconds=8)


class Leader(Service):
    """Takes the lead when nobody has it and keeps it. What leaders do is safe to do twice; this only saves work."""

    def __init__(self, store: AsyncStore, *, owner: str, clock: Clock, term: timedelta = TERM) -> None:
        super().__init__(interval=term.total_seconds() / 3)
        self._store = store
        self._owner = owner
        self._clock = clock
        self._term = term
        self._leads_until = float("-inf")
        self.on_elected: Callable[[], None] = lambda: None
        """Called when this process takes the lead: what the leader before left undone should not wait any longer."""

    @property
    def is_leading(self) -> bool:
        """Whether this process leads, by its own clock counted from before it asked."""
        return self._clock.monotonic() < self._leads_until

    async def run_once(self) -> bool:
        """Take or renew the lead."""
        was_leading = self.is_leading
        asked_at = self._clock.monotonic()
        leadership = await self._store.run(lead(NAME, owner=self._owner, term=self._term), patience_seconds=0)
        if leadership is None:
            self._leads_until = float("-inf")
        else:
            self._leads_until = asked_at + self._term.total_seconds()
            if not was_leading:
                log.info("this worker does the upkeep now, term %d", leadership.term)
                self.on_elected()
        return self.is_leading

    async def resign(self) -> None:
        """Let another process take the lead at once."""
        if self.is_leading:
            self._leads_until = float("-inf")
            await self._store.run(resign(NAME, owner=self._owner), patience_seconds=0)
