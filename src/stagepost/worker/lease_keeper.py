"""Keeps a worker's leases from a thread and connection of its own, so that no handler can hold it up."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import accumulate

from stagepost.clock import Clock, monotonic
from stagepost.database.store import Store
from stagepost.store.leases import Renewed, asked_to_stop, renew
from stagepost.store.settlement import Fence
from stagepost.worker.flights import Flight, Flights

__all__ = ["LeaseKeeper", "newest"]

log = logging.getLogger(__name__)


REPORT_SECONDS = 1.0
"""How soon progress is written, and a cancelled job noticed, long before the next renewal."""
MOST_BYTES = 1_000_000
"""Of progress in one statement: leases must be renewed in time, whatever handlers report."""


class LeaseKeeper(threading.Thread):
    """Renews every lease three times per lease; stops attempts that lost theirs, or soon may have.

    Progress is written with the lease of its attempt, which is renewed early for that.
    """

    def __init__(
        self,
        store: Store,
        flights: Flights,
        *,
        owner: str,
        lease: timedelta,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="stagepost-leases", daemon=True)
        self._store = store
        self._flights = flights
        self._owner = owner
        self._lease = lease
        self._clock = clock
        self._loop = loop
        self._beat = beat
        self._interval = lease.total_seconds() / 3
        self._margin = lease.total_seconds() / 6
        self._wake_event = threading.Event()
        self._stop_event = threading.Event()

    def run(self) -> None:
        """Pass after pass until stopped; a failed pass is tried again soon."""
        due = monotonic() + self._interval
        while True:
            self._wake_event.wait(max(0.0, min(due - monotonic(), REPORT_SECONDS)))
            self._wake_event.clear()
            if self._stop_event.is_set():
                return
            try:
                if monotonic() < due:
                    self.look_once()
                else:
                    self.run_once()
                    self._beat()
                    due = monotonic() + self._interval
            except Exception as error:  # noqa: BLE001 - whatever went wrong, the leases must be tried again
                if self._stop_event.is_set():
                    return
                pause = min(1.0, self._interval / 4)
                due = monotonic() + pause
                log.warning("leases could not be renewed, trying again in %.1f s: %s", pause, error)
            self._fence_expiring()

    async def watch(self) -> None:
        """Stop attempts whose lease is about to end, from the loop: the thread may be hanging in a renewal."""
        while True:
            await asyncio.sleep(self._margin / 2)
            self._fence_expiring()

    def run_once(self) -> Renewed | None:
        """Renew all leases in one statement, and stop attempts that lost theirs or are asked to stop."""
        flights = self._flights.all()
        return self._renew(flights, newest(flights), patience=max(0.5, self._interval)) if flights else None

    def look_once(self) -> None:
        """Do what should not wait for the next renewal: write progress, and stop attempts of cancelled jobs."""
        renewed = self.report_once()
        self.ask_once(besides=renewed.held if renewed else frozenset())

    def ask_once(self, *, besides: frozenset[Fence] = frozenset()) -> set[Fence]:
        """Stop attempts that are asked to stop, and say which; one small read, and none while no handler runs."""
        flights = {flight.fence: flight for flight in self._flights.all() if flight.can_be_stopped}
        if not (fences := flights.keys() - besides):
            return set()
        found = self._store.run(asked_to_stop(list(fences), owner=self._owner), patience_seconds=0)
        for fence in found:
            self._stop(flights[fence])
        return found

    def wake(self) -> None:
        """Look now, from any thread: a job was cancelled in this process."""
        self._wake_event.set()

    def report_once(self) -> Renewed | None:
        """Renew the leases of attempts whose handlers have reported progress that is not written yet."""
        reports = newest(self._flights.all())
        return self._renew(list(reports), reports, patience=0) if reports else None

    def _renew(self, flights: list[Flight], reports: dict[Flight, str], *, patience: float) -> Renewed:
        asked_at = self._clock.monotonic()
        renewed = self._store.run(
            renew(
                [flight.fence for flight in flights],
                owner=self._owner,
                lease=self._lease,
                reports={flight.fence: progress for flight, progress in reports.items()},
            ),
            patience_seconds=patience,
        )
        for flight, progress in reports.items():
            if flight.fence not in renewed.passed_over:
                flight.written = progress
        for flight in flights:
            if flight.fence not in renewed.held:
                # A job that has ended, or is ending, has no lease to lose.
                if not flight.may_be_settled and not flight.has_outcome:
                    self._lose(flight, "its lease was taken over")
                continue
            flight.lease_ends = asked_at + self._lease.total_seconds()
            if flight.fence in renewed.asked_to_stop:
                self._stop(flight)
        return renewed

    def _stop(self, flight: Flight) -> None:
        self._loop.call_soon_threadsafe(flight.stop, "cancelled on request")

    def stop(self) -> None:
        """End the thread after the pass that is running, and wait for that."""
        self._stop_event.set()
        self._wake_event.set()
        if self.is_alive():
            self.join(timeout=self._store.call_seconds + 1)

    def abort(self) -> None:
        """Break off a pass that did not end, and close the connection unless it is the app's own."""
        if not self._store.database.is_memory:
            self._store.abort()
            self._store.close()

    def _fence_expiring(self) -> None:
        """Stop attempts whose lease could not be renewed in time: another worker may get them any moment."""
        now = self._clock.monotonic()
        for flight in self._flights.all():
            if now > flight.lease_ends - self._margin:
                self._lose(flight, "its lease could not be renewed in time")

    def _lose(self, flight: Flight, reason: str) -> None:
        # A flight that was settled since the list was taken has no lease to lose.
        if flight in self._flights and not flight.is_lost:
            self._loop.call_soon_threadsafe(self._lose_on_loop, flight, reason)

    def _lose_on_loop(self, flight: Flight, reason: str) -> None:
        if flight not in self._flights or flight.is_lost:
            return
        flight.is_lost = True
        log.warning("job %s: attempt %d is stopped, %s", flight.job.id, flight.job.attempt, reason)
        flight.stop(reason)


def newest(flights: Iterable[Flight]) -> dict[Flight, str]:
    """Collect the progress to be written, as much as fits; what is left goes first the next time."""
    unwritten = [(flight, progress) for flight in flights if (progress := flight.unwritten) is not None]
    unwritten.sort(key=lambda report: report[0].lease_ends)  # those written last were renewed last
    sizes = accumulate(len(progress) for _, progress in unwritten)
    return {flight: progress for (flight, progress), size in zip(unwritten, sizes, strict=True) if size <= MOST_BYTES}
