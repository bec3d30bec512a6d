"""Elects the one process that does the upkeep which need not be done twice."""

from __future__ import annotations

import logging
from datetime import timedelta

from stagepost.clock import Clock
from stagepost.database.async_store import AsyncStore
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.store.leaders import lead, resign

__all__ = ["BROKER", "TERM", "UPKEEP", "Leader"]

log = logging.getLogger(__name__)

UPKEEP = "upkeep"
BROKER = "broker"
"""What is done with a broker has a leader of its own: not every worker need use one, as during a deployment."""
TERM = timedelta(seconds=8)


class Leader(Service):
    """Takes the lead when nobody has it and keeps it. What leaders do is safe to do twice; this only saves work."""

    def __init__(
        self,
        store: AsyncStore,
        signals: Signals | None = None,
        *,
        owner: str,
        clock: Clock,
        term: timedelta = TERM,
        name: str = UPKEEP,
    ) -> None:
        super().__init__(interval=term.total_seconds() / 3)
        self._store = store
        self._signals = signals or Signals()
        self._owner = owner
        self._name = name
        self._clock = clock
        self.term = term
        self._leads_until = float("-inf")

    @property
    def is_leading(self) -> bool:
        """Whether this process leads, by its own clock counted from before it asked."""
        return self._clock.monotonic() < self._leads_until

    async def run_once(self) -> bool:
        """Take or renew the lead."""
        was_leading = self.is_leading
        asked_at = self._clock.monotonic()
        leadership = await self._store.run(lead(self._name, owner=self._owner, term=self.term), patience_seconds=0)
        if leadership is None:
            self._leads_until = float("-inf")
        else:
            self._leads_until = asked_at + self.term.total_seconds()
            if not was_leading:
                log.info("this worker leads %s now, term %d", self._name, leadership.term)
                self._signals.elected.send()
        return self.is_leading

    async def resign(self) -> None:
        """Let another process take the lead at once."""
        if self.is_leading:
            self._leads_until = float("-inf")
            await self._store.run(resign(self._name, owner=self._owner), patience_seconds=0)
