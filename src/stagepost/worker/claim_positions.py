"""Remembers where the next claim of a queue can start when a claim from the beginning is slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stagepost.model.job import LeasedJob

__all__ = ["ClaimPositions"]

SLOW_SECONDS = 0.03
SLOW_SECONDS_PER_JOB = 0.00006
SHORTEST_SECONDS = 1.0
COST_SHARE = 20
COST_SHARE_WHEN_SHORT = 5


class ClaimPositions:
    """Remembers, per priority, how far claims have come.

    While another transaction is held open, PostgreSQL must keep the index entries of all jobs claimed since, and
    every claim that starts at the beginning reads past them. Once that takes long, claims start at these positions
    instead. A later claim from the beginning finds the jobs before them: those committed late, retries, and new
    priorities. It comes after a second or, if it is expensive, late enough to use a twentieth of the time at most. When
    claims from the positions no longer fill the slots, it comes sooner and may use a fifth.
    """

    def __init__(self) -> None:
        self._marks: dict[int, int] = {}
        self._cost = 0.0
        self._paid_at = float("-inf")
        self._start_over_at = float("-inf")

    def at(self, now: float) -> Mapping[int, int] | None:
        """Return where to start a claim; None means at the beginning."""
        return self._marks if self._marks and now < self._start_over_at else None

    def note(self, jobs: Sequence[LeasedJob], *, wanted: int, began: float, ended: float, marked: bool) -> None:
        """Record how far a claim came and, if it started at the beginning, whether that was slow."""
        is_short = len(jobs) < wanted
        if not marked:
            self._cost, self._paid_at, self._marks = ended - began, ended, {}
            self._start_over_at = ended + max(SHORTEST_SECONDS, COST_SHARE * self._cost)
            if is_short or self._cost <= SLOW_SECONDS + SLOW_SECONDS_PER_JOB * len(jobs):
                return
        elif is_short:
            self._start_over_at = min(self._start_over_at, self._paid_at + COST_SHARE_WHEN_SHORT * self._cost)
        for job in jobs:
            self._marks[job.priority] = max(job.available_at, self._marks.get(job.priority, 0))
