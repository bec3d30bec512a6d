"""Counts what this process did with jobs, as plain integers: nothing is built for a scrape until one comes."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stagepost.database.forks import reset_after_fork

__all__ = ["BUCKETS", "CountedAttempt", "Durations", "ProcessCounts"]

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Upper bounds of the histogram of execution times, in seconds."""

CountedAttempt = tuple[str, str, float]
"""Task, status and seconds of an attempt that has ended."""


class Durations(NamedTuple):
    """How many attempts took how long."""

    numbers: tuple[int, ...]
    """Attempts per bucket, not added up; the last number is of those longer than every bound."""
    seconds: float
    """How long all of them took together."""


class ProcessCounts:
    """The counts of one app in one process. Any thread may write and read them."""

    def __init__(self) -> None:
        reset_after_fork(self)
        self.reset()

    def reset(self) -> None:
        """Start at zero, as a forked child does."""
        self._lock = threading.Lock()
        self._submitted: Counter[str] = Counter()
        self._retries: Counter[str] = Counter()
        self._dead_letters: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()
        self._numbers: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = {}

    def note_submitted(self, tasks: Mapping[str, int]) -> None:
        """Count new jobs by task."""
        with self._lock:
            self._submitted.update(tasks)

    def note_retry(self, task: str) -> None:
        """Count an attempt that failed and is followed by another."""
        with self._lock:
            self._retries[task] += 1

    def note_dead_letter(self, task: str) -> None:
        """Count a job that failed permanently."""
        with self._lock:
            self._dead_letters[task] += 1

    def note_write(self, operation: str) -> None:
        """Count an operation that may have changed rows and has committed."""
        with self._lock:
            self._writes[operation] += 1

    def note_attempts(self, attempts: Iterable[CountedAttempt]) -> None:
        """Count a group of attempts that have ended."""
        numbers, totals = self._numbers, self._seconds
        with self._lock:
            for task, status, seconds in attempts:
                key = task, status
                if key not in numbers:
                    numbers[key], totals[key] = [0] * (len(BUCKETS) + 1), 0.0
                numbers[key][bisect_left(BUCKETS, seconds)] += 1
                totals[key] += seconds

    @property
    def submitted(self) -> dict[str, int]:
        """New jobs by task."""
        return self._copy(self._submitted)

    @property
    def retries(self) -> dict[str, int]:
        """Retries by task."""
        return self._copy(self._retries)

    @property
    def dead_letters(self) -> dict[str, int]:
        """Jobs that failed permanently, by task."""
        return self._copy(self._dead_letters)

    @property
    def writes(self) -> dict[str, int]:
        """Committed operations that may have changed rows, by name."""
        return self._copy(self._writes)

    @property
    def attempts(self) -> dict[tuple[str, str], Durations]:
        """Attempts that have ended, by task and status."""
        with self._lock:
            return {key: Durations(tuple(numbers), self._seconds[key]) for key, numbers in self._numbers.items()}

    def _copy(self, counter: Counter[str]) -> dict[str, int]:
        with self._lock:
            return dict(counter)
