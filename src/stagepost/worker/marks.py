"""Where the next claim of a queue may start, when starting from the beginning has become slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stagepost.model.job import LeasedJob

__all__ = ["Marks"]

SLOW_SECONDS = 0.02
SLOW_SECONDS_PER_JOB = 0.00006
SHORTEST_SECONDS = 1.0
COST_SHARE = 20


class Marks:
    """Remembers, per priority, how far claims have come.

    While another transaction is held open, PostgreSQL must keep the index entries of all jobs claimed since, and
    every claim that starts at the beginning walks over them. Once that shows, claims start at the marks instead.
    What is behind them (a job committed late, a retry, a new priority) is found by the next claim from the
    beginning, which comes after a second, or later the more it costs: it takes a twentieth of the time at most.
    """

    def __init__(self) -> None:
        self._marks: dict[int, int] = {}
        self._start_over_at = float("-inf")

    def at(self, now: float) -> Mapping[int, int] | None:
        """Say from where to claim; None means from the beginning."""
        return self._marks if self._marks and now < self._start_over_at else None

    def note(self, jobs: Sequence[LeasedJob], *, wanted: int, began: float, ended: float, marked: bool) -> None:
        """Learn from a claim: how far it came, and, if it started at the beginning, whether that was slow."""
        if not marked:
            seconds = ended - began
            is_slow = seconds > SLOW_SECONDS + SLOW_SECONDS_PER_JOB * len(jobs)
            self._marks = {}
            self._start_over_at = ended + max(SHORTEST_SECONDS, COST_SHARE * seconds)
            if not is_slow or len(jobs) < wanted:
                return
        for job in jobs:
            self._marks[job.priority] = max(job.available_at, self._marks.get(job.priority, 0))
