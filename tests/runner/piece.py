"""A piece of a run: one pytest process or one command, and its progress."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".dev"
LOGS = STATE / "logs"
STOP_SECONDS = 60.0
"""How long pytest may take to stop the servers that it started, after it was interrupted."""


@dataclass(frozen=True)
class Piece:
    """What one process does. Pieces of one run never share a name."""

    name: str
    pytest: tuple[str, ...] = ()
    """Arguments of pytest."""
    command: tuple[str, ...] = ()
    """What to run instead of pytest."""
    environment: tuple[tuple[str, str], ...] = ()
    python: str = sys.executable

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name}.log"

    @property
    def progress_file(self) -> Path:
        return LOGS / f"{self.name}.jsonl"

    @property
    def arguments(self) -> list[str]:
        if self.command:
            return list(self.command)
        plugin = ["-p", "tests.runner.progress", f"--progress-file={self.progress_file}"]
        return [self.python, "-m", "pytest", *plugin, *self.pytest]


@dataclass
class Finished:
    """One test that has ended."""

    test: str
    outcome: str
    seconds: float
    properties: dict[str, Any]

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


@dataclass
class Failure:
    """Something that failed, and what there is to read about it."""

    test: str
    text: str


@dataclass
class Run:
    """A piece that was started."""

    piece: Piece
    started: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    """How long it took, once it has ended."""
    code: int | None = None
    total: int | None = None
    current: str | None = None
    current_since: float = 0.0
    finished: list[Finished] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    peak_bytes: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _progress: TextIO | None = None
    _unread: str = ""

    @classmethod
    def of(cls, piece: Piece, variables: Mapping[str, str]) -> Run:
        """Start the piece in a separate process group, so that it can be stopped with all its children."""
        LOGS.mkdir(parents=True, exist_ok=True)
        piece.progress_file.unlink(missing_ok=True)
        run = cls(piece)
        with piece.log.open("w") as log:
            run._process = subprocess.Popen(
                piece.arguments,
                cwd=ROOT,
                env={**os.environ, **variables, **dict(piece.environment)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return run

    @property
    def is_over(self) -> bool:
        return self.code is not None

    @property
    def passed(self) -> bool:
        return self.code == 0 and not self.failures

    def count(self, outcome: str) -> int:
        return sum(test.outcome == outcome for test in self.finished)

    def look(self) -> bool:
        """Read what is new; returns whether it has ended."""
        assert self._process is not None
        code = self._process.poll()
        self._read()
        if code is None:
            return False
        self.code, self.seconds, self.current = code, time.monotonic() - self.started, None
        if self._progress is not None:
            self._progress.close()
        if code != 0 and not self.failures:
            self.failures.append(Failure(self.piece.name, f"exit code {code}\n{_end_of(self.piece.log)}"))
        return True

    def interrupt(self) -> None:
        """Ask it to end, so that it stops the servers that it started."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def wait(self) -> None:
        """Wait for its end; kill it with its children if that takes too long."""
        assert self._process is not None
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self) -> None:
        if self._progress is None:
            if not self.piece.progress_file.exists():
                return
            self._progress = self.piece.progress_file.open()
        *lines, self._unread = (self._unread + self._progress.read()).split("\n")
        for line in lines:
            self._note(json.loads(line))

    def _note(self, facts: dict[str, Any]) -> None:
        match facts:
            case {"total": total}:
                self.total = total
            case {"start": test}:
                self.current, self.current_since = test, time.monotonic()
            case {"failed": test, "text": text}:
                self.failures.append(Failure(test, text))
            case {"end": test, "outcome": outcome, "seconds": seconds, "properties": properties}:
                self.current = None
                self.finished.append(Finished(test, outcome, seconds, properties))
            case {"peak_bytes": peak}:
                self.peak_bytes = peak
            case _:
                raise ValueError(f"{self.piece.progress_file}: unknown line {facts}")


def _end_of(log: Path, *, lines: int = 40) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
