"""The attempts a worker has leased: the in-flight map that claimer, executor, finisher and lease keeper share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from stagepost.model.job import LeasedJob

__all__ = ["Flight", "Flights"]

Fence = tuple[str, int]


@dataclass(eq=False)
class Flight:
    """One leased attempt, from its claim until its settlement is written or its lease is lost."""

    job: LeasedJob
    lease_ends: float
    """On the local monotonic clock, counted from before the claim or renewal was sent: never later than the store's."""
    stop: Callable[[str], None] = field(default=lambda _reason: None)
    """Asks the handler to stop; set when it starts, called on the loop."""
    may_be_settled: Callable[[], bool] = field(default=lambda: False)
    """Whether its handler has ended the job in a transaction of its own; set when it starts."""
    has_outcome: bool = False
    """Its attempt is over and on its way to the store."""
    is_lost: bool = False

    @property
    def fence(self) -> Fence:
        """What guards every write of this attempt."""
        return self.job.id, self.job.attempt


class Flights:
    """A map of flights that the loop and the lease keeper's thread both use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Fence, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, flight: Flight) -> bool:
        return self._flights.get(flight.fence) is flight

    def add(self, flights: list[Flight]) -> None:
        """Take on what was claimed."""
        with self._lock:
            self._flights.update((flight.fence, flight) for flight in flights)

    def remove(self, flight: Flight) -> None:
        """Let go of one that is settled or lost; twice does no harm."""
        with self._lock:
            self._flights.pop(flight.fence, None)

    def all(self) -> list[Flight]:
        """All of them at this moment."""
        with self._lock:
            return list(self._flights.values())
