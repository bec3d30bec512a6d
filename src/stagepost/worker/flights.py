"""The attempts a worker has leased: the in-flight map that claimer, executor, finisher and lease keeper share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from stagepost.client.context import JobContext
from stagepost.model.job import LeasedJob

__all__ = ["Flight", "Flights"]

Fence = tuple[str, int]

SMOOTHING = 0.3


@dataclass(eq=False, slots=True)
class Flight:
    """One leased attempt, from its claim until its settlement is written or its lease is lost."""

    job: LeasedJob
    lease_ends: float
    """On the local monotonic clock, counted from before the claim or renewal was sent: never later than the store's."""
    context: JobContext | None = None
    """What its handler knows of it; set when it starts."""
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
        return self.context is not None and self.context.is_settled

    @property
    def may_be_settled(self) -> bool:
        """Whether its handler has ended the job in a transaction of its own, which may have committed."""
        return self.context is not None and self.context.settled_in_transaction

    @property
    def unwritten(self) -> str | None:
        """The newest progress that its handler reported, if the store has another or none."""
        reported = None if self.context is None else self.context.reported
        return None if reported == self.written else reported

    @property
    def can_be_stopped(self) -> bool:
        """Whether its handler runs and has not been asked to stop."""
        return self.waits_in is not None and not self.has_outcome and not (self.context and self.context.is_cancelled)

    def stop(self, reason: str) -> None:
        """Ask its handler to stop, on the loop; a coroutine is cancelled, once, a thread can only be told."""
        if self.context is None or self.waits_in is None or self.has_outcome or self.context.is_cancelled:
            return
        self.context.request_stop(reason)
        task = self.context.task
        if task.is_async or task.options.pool == "process":
            self.waits_in.cancel(reason)


class Flights:
    """A map of flights that the loop and the lease keeper's thread both use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Fence, Flight] = {}
        self.payload_bytes = 0
        """How large the payloads are that are held."""
        self.bytes_each = 0.0
        """How large one is expected to be, from those that came; 0 before the first."""
        self.claiming = asyncio.Lock()
        """Held from a claim until its jobs are in here: in between they look like strays."""
        self.on_removed: list[Callable[[list[Flight]], None]] = []
        """Called with attempts that are settled or lost."""

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, flight: Flight) -> bool:
        return self._flights.get(flight.fence) is flight

    def add(self, flights: list[Flight]) -> None:
        """Take on what was claimed."""
        if not flights:
            return
        size = sum([len(flight.job.payload) for flight in flights])
        mean = size / len(flights)
        with self._lock:
            self._flights.update((flight.fence, flight) for flight in flights)
            self.payload_bytes += size
            # An increase counts at once: too large an estimate costs a claim, too small a one memory.
            self.bytes_each = max(mean, self.bytes_each + SMOOTHING * (mean - self.bytes_each))

    def remove(self, flights: Iterable[Flight]) -> None:
        """Let go of what is settled or lost; twice does no harm."""
        gone = list(flights)
        with self._lock:
            for flight in gone:
                if self._flights.pop(flight.fence, None) is not None:
                    self.payload_bytes -= len(flight.job.payload)
        for tell in self.on_removed:
            tell(gone)

    def forget_payload(self, flight: Flight) -> None:
        """Let go of the payload of an attempt that is over; what is left to do needs only its fence."""
        with self._lock:
            if self._flights.get(flight.fence) is flight:
                self.payload_bytes -= len(flight.job.payload)
            flight.job = msgspec.structs.replace(flight.job, payload="")
        if flight.context is not None:
            flight.context.job = flight.job

    def all(self) -> list[Flight]:
        """All of them at this moment."""
        with self._lock:
            return list(self._flights.values())
