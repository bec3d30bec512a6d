"""The attempts a worker has leased: the in-flight map that claimer, executor, finisher and lease keeper share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

import msgspec

from stagepost.client.running import RunningAttempt
from stagepost.loops.signals import Signal
from stagepost.model.job import LeasedJob

__all__ = ["LeasedAttempt", "LeasedAttempts"]

Fence = tuple[str, int]

SMOOTHING = 0.3


class LeasedAttempt(msgspec.Struct, eq=False, weakref=True):
    """One leased attempt, from its claim until its settlement is written or its lease is lost."""

    job: LeasedJob
    lease_ends: float
    """On the local monotonic clock, from before the claim or renewal was sent: never later than in the store."""
    running: RunningAttempt | None = None
    """What its handler has done so far; set when it starts."""
    waits_in: asyncio.Task[None] | None = None
    """The task that runs it; set when it first has to wait, because it cannot be stopped before that."""
    has_outcome: bool = False
    """The attempt has ended, and its outcome is about to be written."""
    is_lost: bool = False
    is_late: bool = False
    """It returns to its queue because no slot became free for it in time."""
    waits_since: float = 0.0
    """When it began to wait for a slot, on the local monotonic clock."""
    written: str | None = None
    """The progress that the store has."""
    fence: Fence = ("", 0)
    """The job's id and the attempt's number, which guard every write; follows from its job."""

    def __post_init__(self) -> None:
        self.fence = self.job.id, self.job.attempt

    @property
    def is_settled(self) -> bool:
        """Whether its handler has ended the job in a transaction that has committed."""
        return self.running is not None and self.running.is_settled

    @property
    def may_be_settled(self) -> bool:
        """Whether its handler has ended the job in a transaction of its own, which may have committed."""
        return self.running is not None and self.running.settlement is not None

    @property
    def unwritten(self) -> str | None:
        """The newest progress that its handler reported, unless the store has it."""
        reported = None if self.running is None else self.running.reported
        return None if reported == self.written else reported

    @property
    def can_be_stopped(self) -> bool:
        """Whether its handler runs and has not been asked to stop."""
        return self.waits_in is not None and not self.has_outcome and not (self.running and self.running.is_cancelled)

    def stop(self, reason: str) -> None:
        """Ask its handler to stop. A coroutine is cancelled once; a thread only gets the request."""
        if self.running is None or self.waits_in is None or self.has_outcome or self.running.is_cancelled:
            return
        self.running.request_stop(reason)
        task = self.running.task
        if task.is_async or task.options.pool == "process":
            self.waits_in.cancel(reason)


class LeasedAttempts:
    """A map of attempts that the event loop and the lease keeper's thread share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: dict[Fence, LeasedAttempt] = {}
        self.payload_bytes = 0
        """Total size of the payloads."""
        self.bytes_each = 0.0
        """Expected size of a payload, from previous ones; 0 before the first."""
        self.claiming = asyncio.Lock()
        """Held from a claim until its jobs are in this map: in between they look like strays."""
        self.removed: Signal[[list[LeasedAttempt]]] = Signal()
        """These attempts are settled or lost."""

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, attempt: LeasedAttempt) -> bool:
        return self._attempts.get(attempt.fence) is attempt

    def add(self, attempts: list[LeasedAttempt]) -> None:
        """Add leased attempts."""
        if not attempts:
            return
        size = sum([len(attempt.job.payload) for attempt in attempts])
        mean = size / len(attempts)
        with self._lock:
            self._attempts.update((attempt.fence, attempt) for attempt in attempts)
            self.payload_bytes += size
            # Increases apply at once: too large an estimate costs a claim, too small a one costs memory.
            self.bytes_each = max(mean, self.bytes_each + SMOOTHING * (mean - self.bytes_each))

    def remove(self, attempts: Iterable[LeasedAttempt]) -> None:
        """Remove attempts that are settled or lost. Repeating this is harmless."""
        gone = list(attempts)
        with self._lock:
            for attempt in gone:
                if self._attempts.pop(attempt.fence, None) is not None:
                    self.payload_bytes -= len(attempt.job.payload)
        self.removed.send(gone)

    def forget_payload(self, attempt: LeasedAttempt) -> None:
        """Release the payload of an attempt that has ended: writing its outcome needs only the fence."""
        with self._lock:
            if self._attempts.get(attempt.fence) is attempt:
                self.payload_bytes -= len(attempt.job.payload)
            attempt.job = msgspec.structs.replace(attempt.job, payload="")
        if attempt.running is not None:
            attempt.running.job = attempt.job

    def all(self) -> list[LeasedAttempt]:
        """Return a copy of the current attempts."""
        with self._lock:
            return list(self._attempts.values())
