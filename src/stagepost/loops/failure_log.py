"""Logs why background loops fail: each cause once for all loops of a worker, then only its count."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field

from stagepost.clock import Clock, SystemClock
from stagepost.errors import BrokerUnavailable, StagepostError, StoreUnavailable
from stagepost.model.reason import reason_of

__all__ = ["MOST_LINES", "REMIND_SECONDS", "Episode", "FailureCounts", "FailureLog", "cause_of_failure"]

log = logging.getLogger(__name__)

REMIND_SECONDS = 300.0
"""How often a failure that lasts is logged again."""
MOST_LINES = 3
"""How often a failure that comes and goes is logged in that time."""


@dataclass
class Episode:
    """Failures with one cause, from the first until every loop works again."""

    began_at: float
    failures: int = 0
    loops: dict[str, None] = field(default_factory=dict)
    """All loops that have failed, in the order of their first failure."""
    failing: set[str] = field(default_factory=set)
    is_logged: bool = False
    """Whether a line was logged since all loops last worked."""


class FailureCounts:
    """Decides which failures are worth a line; counts the others."""

    def __init__(self) -> None:
        self._episodes: dict[str, Episode] = {}
        self._logged_at: dict[str, list[float]] = {}
        """When each cause was logged, as far as it is not long ago."""

    @property
    def is_empty(self) -> bool:
        """Whether no loop is failing."""
        return not any(episode.failing for episode in self._episodes.values())

    def note_failure(self, loop: str, cause: str, *, now: float) -> Episode | None:
        """Count a failure; returns what to log, or None to log nothing."""
        self._end_all(loop, besides=cause)  # its other causes ended without a line: it does not work
        episode = self._episodes.setdefault(cause, Episode(now))
        episode.failures += 1
        episode.loops[loop] = None
        episode.failing.add(loop)
        recent = [at for at in self._logged_at.get(cause, ()) if now - at < REMIND_SECONDS]
        if len(recent) >= (1 if episode.is_logged else MOST_LINES):
            return None
        episode.is_logged = True
        self._logged_at[cause] = [*recent, now]
        return episode

    def note_success(self, loop: str, *, now: float) -> list[Episode]:
        """Note that a loop works; returns the episodes whose end to log."""
        ended = self._end_all(loop)
        self._forget(now)
        return ended

    def _end_all(self, loop: str, *, besides: str | None = None) -> list[Episode]:
        ended = []
        for cause, episode in list(self._episodes.items()):
            if cause == besides or loop not in episode.failing:
                continue
            episode.failing.discard(loop)
            # An episode without a line continues with the next failure, so that its count is not lost.
            if not episode.failing and episode.is_logged:
                ended.append(self._episodes.pop(cause))
        return ended

    def _forget(self, now: float) -> None:
        """Drop what has not happened for long: a bug may produce any number of causes."""
        old = {cause for cause, logged_at in self._logged_at.items() if now - logged_at[-1] > REMIND_SECONDS}
        for cause in old:
            episode = self._episodes.get(cause)
            if episode is None or not episode.failing:
                del self._logged_at[cause]
                self._episodes.pop(cause, None)


class FailureLog:
    """Logs the failures of a worker's loops. Any thread may call it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._counts = FailureCounts()
        self._lock = threading.Lock()
        self._is_quiet = True
        self._failures: Counter[str] = Counter()

    @property
    def failures(self) -> dict[str, int]:
        """Number of failures so far, by loop."""
        with self._lock:
            return dict(self._failures)

    def failed(self, loop: str, error: Exception, *, note: str = "") -> None:
        """Log or count a failure; `note` says what it means for jobs. The loop is about to try again."""
        now, cause = self._clock.monotonic(), cause_of_failure(error)
        with self._lock:
            episode = self._counts.note_failure(loop, cause, now=now)
            self._failures[loop] += 1
            self._is_quiet = False
        if episode is None:
            return
        exc_info = None if isinstance(error, StagepostError) else error  # anything else is a bug
        text = " ".join(str(error).split()).rstrip(".") if exc_info is None else repr(error)
        if episode.failures == 1:
            log.error(
                "%s failed and tries again: %s. %sFurther failures with the same cause are counted, not logged",
                loop, text, f"{note} " if note else "", exc_info=exc_info,
            )  # fmt: skip
        else:
            log.error(
                "%s: still failing after %.0f s and %d failures, the last: %s",
                ", ".join(episode.loops), now - episode.began_at, episode.failures, text, exc_info=exc_info,
            )  # fmt: skip

    def worked(self, loop: str) -> None:
        """Note that a pass of a loop succeeded."""
        if self._is_quiet:  # without the lock, because this is called after every pass
            return
        now = self._clock.monotonic()
        with self._lock:
            ended = self._counts.note_success(loop, now=now)
            self._is_quiet = self._counts.is_empty
        for episode in ended:
            log.warning(
                "%s: working again after %.0f s and %d failures",
                ", ".join(episode.loops), now - episode.began_at, episode.failures,
            )  # fmt: skip


def cause_of_failure(error: Exception) -> str:
    """Return what failures have in common; a database or broker that is away has many texts."""
    if isinstance(error, StoreUnavailable | BrokerUnavailable):
        return type(error).__name__
    return f"{type(error).__name__}: {reason_of(str(error))}"
