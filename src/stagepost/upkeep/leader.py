"""Elects the worker that does the upkeep for all workers."""

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
"""The work with a broker has its own leader, because some workers may use none, as during a deployment."""
TERM = timedelta(seconds=8)


class Leader(Service):
    """Becomes the leader when there is none, and stays it. This saves work; the upkeep is safe to do twice."""

    def __init__(
        self,
        store: AsyncStore,
        signals: Signals,
        *,
        owner: str,
        clock: Clock,
        term: timedelta = TERM,
        name: str = UPKEEP,
    ) -> None:
        super().__init__(interval=term.total_seconds() / 3)
        self._store = store
        self._signals = signals
        self._owner = owner
        self._name = name
        self._clock = clock
        self.term = term
        self._leads_until = float("-inf")

    @property
    def is_leading(self) -> bool:
        """Whether this worker leads, by its own clock counted from before its last request."""
        return self._clock.monotonic() < self._leads_until

    async def run_once(self) -> bool:
        """Take or renew the leadership; returns whether this worker leads."""
        was_leading = self.is_leading
        asked_at = self._clock.monotonic()
        leadership = await self._store.run(lead(self._name, owner=self._owner, term=self.term), patience_seconds=0)
        if leadership is None:
            self._leads_until = float("-inf")
        else:
            self._leads_until = asked_at + self.term.total_seconds()
            if not was_leading:
                log.info("this worker now leads %s, term %d", self._name, leadership.term)
                self._signals.elected.send()
        return self.is_leading

    async def resign(self) -> None:
        """Give up the leadership, so that another worker can take it at once."""
        if self.is_leading:
            self._leads_until = float("-inf")
            await self._store.run(resign(self._name, owner=self._owner), patience_seconds=0)
