"""The attempts a worker has leased: the in-flight map that claimer, executor, finisher and lease keeper share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from stagepost.client.running import RunningAttempt
from stagepost.model.job import LeasedJob

__all__ = ["LeasedAttempt", "LeasedAttempts"]

Fence = tuple[str, int]

SMOOTHING = 0.3


@dataclass(eq=False, slots=True)
class LeasedAttempt:
    """One leased attempt, from its claim until its settlement is written or its lease is lost."""

    job: LeasedJob
    lease_ends: float
    """On the local monotonic clock, counted from before the claim or renewal was sent: never later than the store's."""
    running: RunningAttempt | None = None
    """What its handler has done so far; set when it starts."""
    waits_in: asyncio.Task[None] | None = None
    """The task that runs it; set when it first has to wait, for before that nobody could stop it."""
    has_outcome: bool = False
    """Its attempt is over and on its way to the store."""
    is_lost: bool = False
    is_delivered: bool = False
    """A broker brought it, and holds its message until the attempt is over."""
    waits_since: float = 0.0
    """When it got in line for a slot, on the local monotonic clock."""
    written: str | None = None
    """The progress of it that the store has."""
    fence: Fence = field(init=False)
    """What guards every write of this attempt."""

    def __post_init__(self) -> None:
        self.fence = self.job.id, self.job.attempt

    @property
    def is_settled(self) -> bool:
        """Whether its handler has ended the job in a transaction that has committed."""
        return self.running is not None and self.running.is_settled

    @property
    def may_be_settled(self) -> bool:
        """Whether its handler has ended the job in a transaction of its own, which may have committed."""
        return self.running is not None and self.running.settled_in_transaction

    @property
    def unwritten(self) -> str | None:
        """The newest progress that its handler reported, if the store has another or none."""
        reported = None if self.running is None else self.running.reported
        return None if reported == self.written else reported

    @property
    def can_be_stopped(self) -> bool:
        """Whether its handler runs and has not been asked to stop."""
        return self.waits_in is not None and not self.has_outcome and not (self.running and self.running.is_cancelled)

    def stop(self, reason: str) -> None:
        """Ask its handler to stop, on the loop; a coroutine is cancelled, once, a thread can only be told."""
        if self.running is None or self.waits_in is None or self.has_outcome or self.running.is_cancelled:
            return
        self.running.request_stop(reason)
        task = self.running.task
        if task.is_async or task.options.pool == "process":
            self.waits_in.cancel(reason)


class LeasedAttempts:
    """A map of attempts that the loop and the lease keeper's thread both use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: dict[Fence, LeasedAttempt] = {}
        self.payload_bytes = 0
        """How large the payloads are that are held."""
        self.bytes_each = 0.0
        """How large one is expected to be, from those that came; 0 before the first."""
        self.claiming = asyncio.Lock()
        """Held from a claim until its jobs are in here: in between they look like strays."""
        self.on_removed: list[Callable[[list[LeasedAttempt]], None]] = []
        """Called with attempts that are settled or lost."""

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, attempt: LeasedAttempt) -> bool:
        return self._attempts.get(attempt.fence) is attempt

    def add(self, attempts: list[LeasedAttempt]) -> None:
        """Take on what was claimed."""
        if not attempts:
            return
        size = sum([len(attempt.job.payload) for attempt in attempts])
        mean = size / len(attempts)
        with self._lock:
            self._attempts.update((attempt.fence, attempt) for attempt in attempts)
            self.payload_bytes += size
            # An increase counts at once: too large an estimate costs a claim, too small a one memory.
            self.bytes_each = max(mean, self.bytes_each + SMOOTHING * (mean - self.bytes_each))

    def remove(self, attempts: Iterable[LeasedAttempt]) -> None:
        """Let go of what is settled or lost; twice does no harm."""
        gone = list(attempts)
        with self._lock:
            for attempt in gone:
                if self._attempts.pop(attempt.fence, None) is not None:
                    self.payload_bytes -= len(attempt.job.payload)
        for tell in self.on_removed:
            tell(gone)

    def forget_payload(self, attempt: LeasedAttempt) -> None:
        """Let go of the payload of an attempt that is over; what is left to do needs only its fence."""
        with self._lock:
            if self._attempts.get(attempt.fence) is attempt:
                self.payload_bytes -= len(attempt.job.payload)
            attempt.job = msgspec.structs.replace(attempt.job, payload="")
        if attempt.running is not None:
            attempt.running.job = attempt.job

    def all(self) -> list[LeasedAttempt]:
        """All of them at this moment."""
        with self._lock:
            return list(self._attempts.values())
