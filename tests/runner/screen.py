"""Shows pieces while they run: one line for each on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from tests.runner.piece import Failure, Run

QUIET_SECONDS = 30.0
"""How often a line per piece is written where lines cannot be redrawn."""
LONG_SECONDS = 5.0
"""How long a test runs before it is worth naming."""


class Screen:
    """Writes to standard error, and redraws the lines of running pieces if that is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._redraws = self._stream.isatty()
        self._drawn = 0
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        """Write something that stays, above the live lines."""
        self._erase()
        self._stream.write(text + "\n")
        self._stream.flush()

    def show_failure(self, run: Run, failure: Failure) -> None:
        self.say(f"\nFAILED {failure.test} ({run.piece.name})\n{failure.text}\n")

    def show_end(self, run: Run) -> None:
        verdict = "passed" if run.passed else "FAILED"
        counted = f", {len(run.finished)} tests" if run.total is not None else ""
        self.say(f"{verdict}: {run.piece.name}{counted}, {minutes(run.seconds or 0)}; log: {run.piece.log}")

    def draw(self, runs: Sequence[Run], waiting: int) -> None:
        """Show how far the running pieces are."""
        running = [run for run in runs if not run.is_over]
        if not self._redraws:
            if time.monotonic() - self._last >= QUIET_SECONDS:
                self._last = time.monotonic()
                self._stream.writelines(f"{line_of(run)}\n" for run in running)
                self._stream.flush()
            return
        self._erase()
        lines = [line_of(run) for run in running] + ([f"{waiting} more to start"] if waiting else [])
        width = shutil.get_terminal_size().columns - 1
        self._stream.writelines(f"{line[:width]}\n" for line in lines)
        self._stream.flush()
        self._drawn = len(lines)

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0


def line_of(run: Run) -> str:
    """How far a piece is: done / total, failed, and the test it is at if that takes long."""
    done = f"{len(run.finished)}/{run.total}" if run.total is not None else "running"
    failed = f", {len(run.failures)} FAILED" if run.failures else ""
    since = time.monotonic() - run.current_since
    current = f", {since:.0f} s in {run.current}" if run.current and since > LONG_SECONDS else ""
    return f"  {run.piece.name:<20} {minutes(time.monotonic() - run.started):>6}  {done}{failed}{current}"


def minutes(seconds: float) -> str:
    """As `7:05`, minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
