"""Writes the outcomes of attempts in groups: outcomes that arrive during one commit share the next."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from stagepost.config.logging import job_fields
from stagepost.database.async_store import AsyncStore
from stagepost.database.trouble import Trouble
from stagepost.errors import LeaseLost, StoreError, StoreUnavailable
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.model.groups import GROUP_BYTES, first_group, halves
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Outcome, Refused
from stagepost.store.attempts import ended_by
from stagepost.store.settlement import Fence, Settlement
from stagepost.store.settling import settle
from stagepost.store.workers import notify_workers
from stagepost.worker.attempt_counts import count_ends
from stagepost.worker.attempt_log import log_attempt, logs_all_ends
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts

__all__ = ["Finisher", "is_conflict"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 1000
PATIENCE_SECONDS = 10.0
IDLE_SECONDS = 3600.0
SIZE = attrgetter("size")
LARGE_PAYLOAD = 10_000
"""Payloads of at least this size are released when their attempt ends."""


class PendingSettlement(msgspec.Struct, frozen=True, eq=False, gc=False):
    """An outcome that is not written yet."""

    attempt: LeasedAttempt
    change: Settlement
    size: int
    """About how many bytes must be written."""


class Finisher(Service):
    """Settles attempts in groups."""

    def __init__(
        self,
        store: AsyncStore,
        attempts: LeasedAttempts,
        signals: Signals,
        *,
        notifies: bool = False,
    ) -> None:
        super().__init__(interval=IDLE_SECONDS)
        self.settled = 0
        self.lost = 0
        self._store = store
        self._attempts = attempts
        self._signals = signals
        self._notifies = notifies
        self._endings: list[PendingSettlement] = []
        self._most: int | None = None
        """Largest group after a connection was lost while writing one; None without such a limit."""
        self.pending_bytes = 0
        """Approximate size of the outcomes that are not written yet."""

    @property
    def ended(self) -> int:
        """Number of attempts that have ended, whether or not their outcome was accepted."""
        return self.settled + self.lost

    @property
    def pending(self) -> int:
        """Number of outcomes that are not written yet."""
        return len(self._endings)

    def put(self, attempt: LeasedAttempt, outcome: Outcome) -> None:
        """Accept an outcome, to be written with the next group."""
        attempt.has_outcome = True
        change = Settlement.of(attempt.job, outcome)
        size = change.size
        self._endings.append(PendingSettlement(attempt, change, size))
        self.pending_bytes += size
        if len(attempt.job.payload) >= LARGE_PAYLOAD:
            self._attempts.forget_payload(attempt)
        if len(self._endings) == 1:  # otherwise a pass is running or due, and checks at its end for more
            self.wake()

    async def run_once(self) -> int:
        """Write one group; outcomes that cannot be written now stay for a later pass."""
        most = MOST_AT_ONCE if self._most is None else min(MOST_AT_ONCE, self._most)
        fit_together = self.pending_bytes <= GROUP_BYTES
        group = self._endings[:most] if fit_together else first_group(self._endings, size=SIZE, most=most)
        if not group:
            return 0
        held = await self._settle(group)
        self._most = None if self._most is None or self._most >= MOST_AT_ONCE else 2 * self._most
        tried = {ending.attempt.fence for ending in group}
        kept = [ending for ending in group if ending.attempt.fence not in held and ending in self._endings]
        # Behind the others: an outcome whose row is locked by a transaction of its handler must not delay them.
        self._keep([ending for ending in self._endings if ending.attempt.fence not in tried] + kept)
        self._note([ending for ending in group if ending.attempt.fence in held], held)
        if limit_keys := {ending.change.limit_key for ending in group if ending.change.limit_key}:
            self._signals.limits_freed.send(limit_keys)
        self._signals.batches_touched.send(
            {ending.attempt.job.batch_id for ending in group if ending.attempt.fence in held}
        )
        released = [ending for ending in group if ending.change.state is JobState.QUEUED]
        if ended := len(group) - len(released):
            self._signals.attempts_ended.send(ended)
        self._signals.outcomes_written.send()
        if queues := {ending.attempt.job.queue_name for ending in released if held.get(ending.attempt.fence)}:
            await self._notify_workers(queues)
        if self._endings:
            self.wake()
        return len(group)

    async def _notify_workers(self, queues: set[str]) -> None:
        """Notify idle workers of jobs that returned to their queues; without this they find them at their next poll."""
        self._store.store.notifier.notify(queues)
        if not self._notifies:
            return
        with contextlib.suppress(StoreError):
            await self._store.run(notify_workers(queues), patience_seconds=0)

    async def _settle(self, group: Sequence[PendingSettlement]) -> dict[Fence, bool]:
        try:
            return await self._settle_together(group)
        except StoreUnavailable as error:
            self._drop_lost()
            if not is_conflict(error, self._store):
                self._shrink_groups(group)
                raise
            if len(group) == 1:
                raise
            return await self._settle_singly([ending for ending in group if not ending.attempt.is_lost])
        except Exception as error:  # noqa: BLE001 - logged again with the outcome that caused it
            if len(group) == 1:
                return await self._settle_singly(group)
            log.warning("%d outcomes could not be written together; writing them in halves: %s", len(group), error)
            held: dict[Fence, bool] = {}
            for half in halves(group):
                held |= await self._settle(half)
            return held

    def _shrink_groups(self, group: Sequence[PendingSettlement]) -> None:
        """Write half as many the next time: the connection may have been lost because of the size of the group.

        An outcome that fails on its own moves behind the others, so that they do not wait for it.
        """
        self._most = max(1, len(group) // 2)
        if len(group) == 1:
            [last] = group
            self._endings = [ending for ending in self._endings if ending is not last] + [
                ending for ending in self._endings if ending is last
            ]

    async def _settle_together(self, group: Sequence[PendingSettlement]) -> dict[Fence, bool]:
        """Write the outcomes that handlers have not written in transactions of their own."""
        held = {ending.attempt.fence: True for ending in group if ending.attempt.is_settled}
        asked = [
            ending.change for ending in group if ending.attempt.may_be_settled and ending.attempt.fence not in held
        ]
        if asked:
            ended = await self._store.run(ended_by(asked), patience_seconds=self._patience)
            held |= dict.fromkeys(ended, True)
            for ending in group:
                if ending.attempt.fence in ended and ending.attempt.running is not None:
                    ending.attempt.running.is_settled = True
        if rest := [ending.change for ending in group if ending.attempt.fence not in held]:
            held |= await self._store.run(settle(rest), patience_seconds=self._patience)
        return held

    @property
    def _patience(self) -> float:
        """How long to retry; a group during which the connection was lost is not retried as a whole."""
        return PATIENCE_SECONDS if self._most is None else 0

    async def _settle_singly(self, group: Sequence[PendingSettlement]) -> dict[Fence, bool]:
        """Fail only the job whose outcome the store refuses, and skip jobs that are locked."""
        held: dict[Fence, bool] = {}
        for ending in group:
            try:
                settled = await self._store.run(settle([ending.change]), patience_seconds=0)
            except StoreUnavailable as error:
                if not is_conflict(error, self._store):
                    raise
                log.warning(
                    "job %s: its row is locked; its outcome will be written later",
                    ending.change.id, extra=job_fields(ending.attempt.job),
                )  # fmt: skip
                continue
            except Exception as error:
                reason = f"its outcome could not be stored: {type(error).__name__}: {error}"
                log.exception("job %s: %s", ending.change.id, reason, extra=job_fields(ending.attempt.job))
                settled = await self._refuse(ending, reason)
            held.update(settled)
        return held

    async def _refuse(self, ending: PendingSettlement, reason: str) -> dict[Fence, bool]:
        """Fail a job whose outcome cannot be stored; if that fails too, its lease expires."""
        try:
            return await self._store.run(settle([Settlement.of(ending.attempt.job, Refused(reason))]))
        except StoreUnavailable:
            raise
        except Exception:
            log.exception(
                "job %s: the database also refused to store the job as failed",
                ending.change.id, extra=job_fields(ending.attempt.job),
            )  # fmt: skip
            return {ending.change.fence: False}

    def _drop_lost(self) -> None:
        """Drop outcomes whose lease expired while the store was unreachable: other workers have these jobs now."""
        lost = [ending for ending in self._endings if ending.attempt.is_lost]
        self._keep([ending for ending in self._endings if not ending.attempt.is_lost])
        self._note(lost, {})

    def _keep(self, endings: list[PendingSettlement]) -> None:
        self._endings, self.pending_bytes = endings, sum(map(SIZE, endings))

    def _note(self, endings: list[PendingSettlement], held: dict[Fence, bool]) -> None:
        """Remove attempts, and count and log how they ended."""
        self._attempts.remove(ending.attempt for ending in endings)
        count_ends(self._store.store.counts, ((ending.attempt, ending.change) for ending in endings), held)
        logs_all = logs_all_ends()
        for ending in endings:
            attempt, change = ending.attempt, ending.change
            if held.get(attempt.fence):
                self.settled += 1
                if change.kind is not None or attempt.may_be_settled or logs_all:
                    log_attempt(attempt, change)
            elif attempt.may_be_settled:
                self.settled += 1
            else:
                self.lost += 1
                log.warning("%s", LeaseLost(change.id, change.attempt), extra=job_fields(attempt.job))


def is_conflict(error: StoreUnavailable, store: AsyncStore) -> bool:
    """Whether the store is reachable and another transaction has locked a row."""
    cause = error.__cause__
    return cause is not None and store.store.dialect.trouble(cause) is Trouble.CONFLICT
