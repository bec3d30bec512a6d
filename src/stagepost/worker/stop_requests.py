"""Requests to stop a worker, and how much time they leave it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from stagepost.clock import monotonic

__all__ = ["HURRIED", "UNHURRIED", "Patience", "StopRequests"]


@dataclass(frozen=True)
class Patience:
    """How long the parts of a shutdown may take, in seconds."""

    stubborn: float
    """How long handlers may take to react to a request to stop."""
    silence: float
    """How long the database may leave a call unanswered before unwritten outcomes are abandoned."""
    writing: float
    """How long a database that answers may take to store all outcomes. A lease is the upper bound."""
    parting: float
    """How long threads and connections may take to end."""
    total: float
    """How long the whole shutdown may take, beyond the time for handlers, while the database does not answer."""


UNHURRIED = Patience(stubborn=2.0, silence=2.0, writing=float("inf"), parting=3.0, total=4.5)
HURRIED = Patience(stubborn=0.5, silence=0.75, writing=5.0, parting=0.25, total=1.8)


class StopRequests:
    """Records when a worker was asked to stop and to hurry."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.stopped_at = float("inf")
        self.hurried_at = float("inf")
        self.must_restart = False
        """Whether this process can run no more jobs and has to be started again."""
        self._work: asyncio.Task[Any] | None = None

    def request_stop(self) -> None:
        """Ask the worker to stop; the second request asks it to hurry."""
        if self.is_stopping:
            self.note_hurry()
        self.note_stop()

    def request_restart(self) -> None:
        """Ask the worker to stop and its process to be started again."""
        self.must_restart = True
        self.request_stop()

    def note_stop(self) -> None:
        """Record a request to stop; a repeated one changes nothing."""
        if not self.stop.is_set():
            self.stopped_at = monotonic()
            self.stop.set()

    def note_hurry(self) -> None:
        """Record a request to stop at once; a repeated one changes nothing."""
        self.note_stop()
        if not self.hurry.is_set():
            self.hurried_at = monotonic()
            self.hurry.set()

    def follow(self, work: asyncio.Task[Any]) -> None:
        """Take the worker's own task, which only a closing event loop cancels."""
        self._work = work

    def is_loop_closing(self) -> bool:
        """Whether the event loop is closing. It then cancels every task, including those of attempts."""
        return self._work is not None and self._work.cancelling() > 0

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was asked to stop."""
        return self.stop.is_set()

    @property
    def patience(self) -> Patience:
        """The limits that apply now."""
        return HURRIED if self.hurry.is_set() else UNHURRIED

    def seconds_left(self, shutdown_timeout: float) -> float:
        """Return how long the process may still take to end if the database does not answer."""
        ends_at = min(self.hurried_at + HURRIED.total, self.stopped_at + shutdown_timeout + UNHURRIED.total)
        return ends_at - monotonic()
