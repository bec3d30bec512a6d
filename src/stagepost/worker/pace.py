"""Measures how fast a worker ends jobs, which decides how many it leases ahead."""

from __future__ import annotations

from stagepost.clock import Clock

__all__ = ["HELD_BYTES", "Pace", "room", "within_bytes"]

AHEAD_SECONDS = 0.1
"""Lease jobs for this long ahead: enough to hide a round trip, too few to keep work from other workers."""
LONGEST_WAIT_SECONDS = 0.25
"""How long a job that was leased ahead may wait for a slot before it should go to another worker."""
SHORTEST_QUIET_SECONDS = 0.03
MOST_AHEAD = 2000
MOST_OVER = 2000
"""How many attempts that have ended, and are not written yet, do not count as held."""
SMOOTHING = 0.3
HELD_BYTES = 16 * 1024 * 1024
"""Bytes of payloads, and separately of outcomes, above which a worker leases no more jobs than it has free slots."""


class Pace:
    """Averages jobs per second over the last groups that were settled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate = 0.0
        self._noted_at = clock.monotonic()
        self.is_stalled = False
        """Whether jobs leased ahead had to be returned and no job has ended since; then none are leased ahead."""

    def note(self, jobs: int) -> None:
        """Record how many jobs ended since the last call."""
        now = self._clock.monotonic()
        seconds = max(now - self._noted_at, 0.001)
        self._noted_at = now
        self.is_stalled = False
        self._rate += SMOOTHING * (jobs / seconds - self._rate)

    def ahead(self) -> int:
        """How many jobs to lease beyond the free slots: none for slow jobs, hundreds for quick ones."""
        return min(int(self._rate * AHEAD_SECONDS), MOST_AHEAD)

    def is_late(self, *, waited: float, quiet: float, slots: int) -> bool:
        """Return whether jobs leased ahead are late: the first for `waited` seconds, none ended for `quiet` seconds.

        At the current rate, each slot becomes free every slots / rate seconds. If none has become free for twice that
        time, the running jobs take longer than the ones before them.
        """
        usual = 2 * slots / self._rate if self._rate else LONGEST_WAIT_SECONDS
        return waited > LONGEST_WAIT_SECONDS or quiet > max(usual, SHORTEST_QUIET_SECONDS)

    def stall(self) -> None:
        """Forget the rate, because the running jobs take longer than the ones it was measured with."""
        self._rate = 0.0
        self.is_stalled = True


def room(*, slots: int, ahead: int, held: int, over: int, ready: int) -> int:
    """Return how many jobs to claim, given how many are `held`, of which `over` have ended and `ready` wait for a slot.

    A job that has ended only has to be written and needs no slot, so others are claimed meanwhile; the number of such
    jobs is bounded, in case the store is slow. No job is claimed while more than half of the jobs leased ahead still
    wait, because one claim for every job that ends would cost more than a short job itself.
    """
    return 0 if ready > ahead // 2 else slots + ahead - (held - min(over, MOST_OVER))


def within_bytes(jobs: int, *, free: int, held_bytes: int, bytes_each: float) -> int:
    """Return how many of these jobs to claim so that the payloads that are held stay within `HELD_BYTES`.

    Every free slot gets a job, whatever its size. No more are claimed while sizes are not known, or while most of the
    bytes are taken, because one claim for every job that ends would cost more than it gains.
    """
    left = HELD_BYTES - held_bytes
    fitting = int(left / bytes_each) if bytes_each and left >= HELD_BYTES // 4 else 0
    return min(jobs, max(free, fitting))
