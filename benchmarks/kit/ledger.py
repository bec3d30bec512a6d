"""The ledger: which jobs ran, how often and when, in memory that all processes of a run share."""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from pathlib import Path

__all__ = ["LEDGER_VARIABLE", "Ledger", "note"]

LEDGER_VARIABLE = "BENCH_LEDGER"
WORD_BYTES = 8
SHOWN = 5


class Ledger:
    """The reader's side. Files, so that nothing a handler noted is lost with its process."""

    def __init__(self, directory: Path, jobs: int) -> None:
        directory.mkdir(parents=True)
        (directory / "runs").write_bytes(bytes(jobs))
        (directory / "starts").write_bytes(bytes(jobs * WORD_BYTES))
        self.directory = directory
        self.jobs = jobs
        """How many there are; a stage that makes room for more than it asks for corrects it before the verdict."""
        self.others_left = 0
        """How many jobs the store has besides, which no worker can run."""
        self._runs = _map(directory / "runs")
        self._starts = memoryview(_map(directory / "starts")).cast("q")

    @property
    def begun(self) -> int:
        """How often jobs have started."""
        return sum(int.from_bytes(file.read_bytes(), sys.byteorder) for file in self._process_files())

    @property
    def processes(self) -> int:
        """How many processes have started a job."""
        return len(self._process_files())

    def begun_at(self, number: int) -> float | None:
        """When a job began, in seconds of the machine's monotonic clock; None if it has not."""
        nanoseconds = self._starts[number]
        return nanoseconds / 1e9 if nanoseconds else None

    def first_begun_at(self) -> float:
        """When the first of all jobs began."""
        return min(nanoseconds for nanoseconds in self._starts if nanoseconds) / 1e9

    def last_begun_at(self) -> float:
        """When the last of all jobs began."""
        return max(self._starts) / 1e9

    def faults(self, *, left: int, ended: int | None, interrupted: bool = False) -> list[str]:
        """Say what is wrong: each job must have run once and ended, or be left in the store and never have run.

        `left` and `ended` are the store's own counts after the workers stopped; None: it forgets ended jobs. Where
        workers were interrupted in the middle, jobs that ran may be left, to run again, but none may be missing.
        """
        runs = self._runs[: self.jobs]
        ran = len(runs) - runs.count(0)
        found = []
        if repeated := [number for number, times in enumerate(runs) if times > 1]:
            found.append(f"{len(repeated)} jobs ran more than once, such as {repeated[:SHOWN]}")
        if ran + left < self.jobs or (ran + left > self.jobs and not interrupted):
            found.append(f"{ran} of {self.jobs} jobs ran and {left} are left in the store")
        if ended is not None and (ended > ran or (ended < ran and not interrupted)):
            found.append(f"{ran} jobs ran but {ended} ended in the store")
        return found

    def unsettled(self, *, left: int) -> int:
        """How many jobs ran and are left in the store all the same."""
        return left - self._runs[: self.jobs].count(0)

    def _process_files(self) -> list[Path]:
        return list(self.directory.glob("process-*"))


class Pen:
    """A process's own side."""

    def __init__(self, directory: Path) -> None:
        own = directory / f"process-{os.getpid()}"
        own.write_bytes(bytes(WORD_BYTES))
        self._runs = _map(directory / "runs")
        self._starts = memoryview(_map(directory / "starts")).cast("q")
        self._begun = memoryview(_map(own)).cast("q")
        self._lock = threading.Lock()

    def note(self, number: int) -> None:
        """Write down that a job begins."""
        with self._lock:
            self._starts[number] = time.monotonic_ns()
            self._runs[number] += 1
            self._begun[0] += 1


def note(number: int) -> None:
    """Write down that a job begins: all that a handler does, less than a microsecond."""
    pen = _pens.get(os.getpid())  # a forked process has its parent's pens and needs its own
    if pen is None:
        pen = _new_pen(os.getpid())
    pen.note(number)


_pens: dict[int, Pen] = {}
_making = threading.Lock()


def _new_pen(process: int) -> Pen:
    with _making:  # the first jobs of a process may begin in several threads at once
        if process not in _pens:
            _pens[process] = Pen(Path(os.environ[LEDGER_VARIABLE]))
        return _pens[process]


def _map(file: Path) -> mmap.mmap:
    with file.open("r+b") as opened:
        return mmap.mmap(opened.fileno(), 0)
