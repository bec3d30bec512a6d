"""Decides how many jobs a worker may lease now, and how many messages it may hold."""

from __future__ import annotations

from stagepost.worker.executor import Executor
from stagepost.worker.finisher import Finisher
from stagepost.worker.leased_attempts import LeasedAttempts
from stagepost.worker.pace import HELD_BYTES, Pace, room, within_bytes

__all__ = ["ClaimRoom"]


class ClaimRoom:
    """Reads what the worker holds, runs and has yet to write, and applies the bounds of `worker/pace.py`."""

    def __init__(
        self, attempts: LeasedAttempts, executor: Executor, finisher: Finisher, pace: Pace, *, prefetch: int | None
    ) -> None:
        """`prefetch` is how many jobs to lease beyond the free slots; None lets the pace of recent work decide."""
        self._attempts = attempts
        self._executor = executor
        self._finisher = finisher
        self._pace = pace
        self._prefetch = prefetch
        self._slots = executor.concurrency

    def jobs(self) -> int:
        """Return how many more jobs to lease; zero or less means none."""
        held = len(self._attempts)
        over = self._finisher.pending if self._finisher.pending_bytes <= HELD_BYTES else 0
        jobs = room(
            slots=self._slots,
            ahead=self._ahead,
            held=held,
            over=over,
            ready=self._executor.ready,
        )
        return within_bytes(
            jobs,
            free=self._slots - (held - over),
            held_bytes=self._attempts.payload_bytes,
            bytes_each=self._attempts.bytes_each,
        )

    def messages_ahead(self) -> int:
        """Return how many messages of a broker to hold beyond the slots; none as long as sizes are not known."""
        each = self._attempts.bytes_each
        return min(self._ahead, int(HELD_BYTES / each)) if each else 0

    @property
    def _ahead(self) -> int:
        if self._pace.is_stalled:
            return 0
        return self._pace.ahead() if self._prefetch is None else self._prefetch
