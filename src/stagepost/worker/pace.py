"""How fast a worker ends jobs, and so how many it should lease ahead."""

from __future__ import annotations

from stagepost.clock import Clock

__all__ = ["HELD_BYTES", "Pace", "room", "within_bytes"]

AHEAD_SECONDS = 0.1
"""Jobs for this long are leased ahead: enough to hide a round trip, too few to keep them from other workers."""
LONGEST_WAIT_SECONDS = 0.25
"""How long a job that was leased ahead may wait for a slot; then another worker should have it."""
SHORTEST_QUIET_SECONDS = 0.03
MOST_AHEAD = 2000
MOST_OVER = 2000
"""How many attempts that are over and not yet written make room for others."""
SMOOTHING = 0.3
HELD_BYTES = 16 * 1024 * 1024
"""How much of payloads, and as much of outcomes, a worker holds before it leases no more than its slots need."""


class Pace:
    """Averages jobs per second over the last groups that were settled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate = 0.0
        self._noted_at = clock.monotonic()
        self.is_stalled = False
        """Jobs leased ahead had to be given back, and none has ended since: lease none ahead."""

    def note(self, jobs: int) -> None:
        """Take in that so many jobs ended since the last call."""
        now = self._clock.monotonic()
        seconds = max(now - self._noted_at, 0.001)
        self._noted_at = now
        self.is_stalled = False
        self._rate += SMOOTHING * (jobs / seconds - self._rate)

    def ahead(self) -> int:
        """How many jobs to lease beyond the free slots: none for slow jobs, hundreds for quick ones."""
        return min(int(self._rate * AHEAD_SECONDS), MOST_AHEAD)

    def is_late(self, *, waited: float, quiet: float, slots: int) -> bool:
        """Say whether jobs leased ahead wait too long: the first for `waited` seconds, none ended for `quiet` seconds.

        At the present rate each slot comes free once in slots / rate seconds. If none has for twice that time, the
        jobs that hold them take longer than those before.
        """
        usual = 2 * slots / self._rate if self._rate else LONGEST_WAIT_SECONDS
        return waited > LONGEST_WAIT_SECONDS or quiet > max(usual, SHORTEST_QUIET_SECONDS)

    def stall(self) -> None:
        """Start again from zero: the rate of the jobs before says nothing of those that run now."""
        self._rate = 0.0
        self.is_stalled = True


def room(*, slots: int, ahead: int, held: int, over: int, ready: int) -> int:
    """How many jobs to claim beyond those that are held, of which some are over, and some ready and wait for a slot.

    Those that are over need no slot, only to be written, and the next are claimed beside that; but not without end
    where the store is slow. None while more than half of those leased ahead still wait: a claim for every job that
    ends would cost more than many a job.
    """
    return 0 if ready > ahead // 2 else slots + ahead - (held - min(over, MOST_OVER))


def within_bytes(jobs: int, *, free: int, held_bytes: int, bytes_each: float) -> int:
    """How many of these jobs to claim so that the payloads that are held stay within their bound.

    Each free slot gets its job, whatever its size. As long as sizes are not known, no more are claimed than that; nor
    while most of the bound is taken: a claim for every job that ends would cost more than it gains.
    """
    left = HELD_BYTES - held_bytes
    fitting = int(left / bytes_each) if bytes_each and left >= HELD_BYTES // 4 else 0
    return min(jobs, max(free, fitting))
