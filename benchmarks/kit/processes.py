"""CPU time and memory of process trees, from /proc; workers started and stopped as one crew."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Crew", "CrewFailed", "cpu_seconds", "memory_bytes", "tree"]

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
STOP_SECONDS = 30.0
LOG_LINES = 20


class CrewFailed(RuntimeError):
    """Workers ended, or stood still, before their work was done."""


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    seconds: float
    """Its own CPU time and that of children it has waited for."""


def tree(roots: Iterable[int]) -> list[int]:
    """List the processes and all their descendants that are alive."""
    return [process.pid for process in _tree(roots)]


def cpu_seconds(roots: Iterable[int]) -> float:
    """Add up the CPU time of process trees, ended children included."""
    return sum(process.seconds for process in _tree(roots))


def memory_bytes(roots: Iterable[int]) -> int:
    """Add up proportional memory: what forked processes share counts once."""
    return sum(_proportional_bytes(pid) for pid in tree(roots))


class Crew:
    """Worker processes, each with its descendants in a session of its own."""

    def __init__(self, commands: Sequence[Sequence[str]], *, environment: Mapping[str, str], log: Path) -> None:
        self._commands = commands
        self._environment = environment
        self._log = log
        self._processes: list[subprocess.Popen[bytes]] = []
        self.killed = 0
        """How many did not end when they were asked to."""

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            for command in self._commands:
                self._processes.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env={**os.environ, **self._environment},
                        start_new_session=True,
                    )
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        """The processes that were started."""
        return [process.pid for process in self._processes]

    def check(self) -> None:
        """Raise if one of them has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise CrewFailed(f"a worker ended with code {process.returncode}:\n{self.log_tail()}")

    def stop(self) -> None:
        """Ask them to end as an operator would, and wait; kill what is left after a while."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for process in self._processes:
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.killed += 1
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()

    def log_tail(self) -> str:
        """The last lines that the workers wrote."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])


def _tree(roots: Iterable[int]) -> list[_Process]:
    everyone = _everyone()
    children: dict[int, list[int]] = {}
    for process in everyone.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: dict[int, _Process] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in everyone and pid not in found:
            found[pid] = everyone[pid]
            waiting += children.get(pid, [])
    return list(found.values())


def _everyone() -> dict[int, _Process]:
    if not (PROC / "self" / "stat").exists():
        raise CrewFailed("the benchmarks read /proc, which this system does not have. Run them on Linux.")
    processes = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (process := _read(entry)) is not None:
            processes[process.pid] = process
    return processes


def _read(entry: Path) -> _Process | None:
    try:
        # The name, in parentheses, may hold spaces.
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it ended meanwhile
        return None
    ticks = sum(int(field) for field in fields[11:15])
    return _Process(int(entry.name), int(fields[1]), ticks / TICKS_PER_SECOND)


def _proportional_bytes(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
