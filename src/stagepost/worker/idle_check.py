"""Finds out when a worker has nothing left to do."""

from __future__ import annotations

import asyncio

from stagepost.errors import StoreError
from stagepost.worker.parts import Parts

__all__ = ["IdleCheck"]

EMPTY_PASSES = 2
"""How many passes of the claimer must find no job: the first may have started before it was asked for."""
POLL_SECONDS = 0.01


class IdleCheck:
    """Waits until no job is due, none can be claimed and none is running."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def wait(self) -> None:
        """Return once the worker is idle, or was asked to stop."""
        while not self._parts.requests.is_stopping:
            ended = self._ended
            # Twice with a broker: an answer that is stored after the search for due jobs may make a job due, and is
            # counted a moment later.
            is_idle = await self._is_idle() and (self._parts.broker is None or await self._is_idle())
            if is_idle and self._ended == ended:
                return
            await asyncio.sleep(POLL_SECONDS)

    @property
    def _ended(self) -> int:
        broker = self._parts.broker
        return self._parts.finisher.ended + (broker.answered if broker else 0)

    async def _is_idle(self) -> bool:
        parts = self._parts
        if len(parts.attempts) or parts.concluder.pending or parts.limit_opener.pending or await self._may_promote():
            return False
        await self._wait_for_empty_claims()
        # Again: a claim may have made a job wait for its rate since.
        if parts.app.registry.limit_rules.rates and await self._may_promote():
            return False
        has_sent_all = parts.broker is None or await parts.broker.is_idle()
        return not len(parts.attempts) and has_sent_all

    async def _may_promote(self) -> bool:
        """Promote what is due; returns whether jobs became ready, or may have."""
        promoter = self._parts.promoter
        try:
            return bool(await promoter.run_once(thorough=True)) or promoter.awaits_tokens
        except StoreError:
            return True

    async def _wait_for_empty_claims(self) -> None:
        claimer = self._parts.claimer
        claimer.empty_passes = 0
        while claimer.empty_passes < EMPTY_PASSES and not self._parts.requests.is_stopping:
            claimer.wake()
            await asyncio.sleep(POLL_SECONDS)
