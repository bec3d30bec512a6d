"""Runs the demo: kills a worker while it speaks, starts another one, and audits the result."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from stagepost_dubbing.demo.voice import BOOK_VARIABLE, MOST_VARIABLE, PACE_VARIABLE, spoken_in
from stagepost_dubbing.dubbing import Dubbing, DubbingError, TaskView
from stagepost_dubbing.settings import DubbingSettings
from stagepost_dubbing.tables.segments import Segment
from stagepost_dubbing.tables.tasks import Task

__all__ = ["LEASE_SECONDS", "Ledger", "Show"]

LEASE_SECONDS = 3
PACE_SECONDS = 0.4
MOST_BEFORE_THE_KILL = 4
LONGEST_SECONDS = 600
STOP_SECONDS = 20


class Ledger(msgspec.Struct, frozen=True):
    """Totals of the demo, counted at its end."""

    segments: int
    spoken: int
    """Segments with speech; must be all segments."""
    stored_before_the_kill: int
    spoken_again: int
    """Segments stored before the kill that were spoken again; must be 0."""
    attempts_to_speak: int
    """Attempts of the step tts; two, because one was killed, or more if the machine stalled for long."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost, and no stored work was repeated."""
        is_whole = self.segments > 0 and self.spoken == self.segments
        return is_whole and self.spoken_again == 0 and self.attempts_to_speak >= 2


class Show:
    """One run of the demo in a separate folder."""

    def __init__(self, folder: Path, *, say: Callable[[str], None]) -> None:
        self.folder = folder
        self._say = say
        self._book = folder / "spoken.txt"
        self._environment = _environment(folder, self._book)
        self.dubbing = Dubbing(DubbingSettings.load(self._environment), environment=self._environment)
        self._worker: subprocess.Popen[bytes] | None = None
        self._started = 0
        self._stored: list[Segment] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_worker()
        self.dubbing.close()

    def play(self, video: Path, *, to: str, on_look: Callable[[TaskView], None]) -> Task:
        """Dub the video, and kill the worker along the way."""
        self.dubbing.services.check(self.dubbing.app.registry.queues)
        task = self.dubbing.submit(video, to=to)
        self._start_worker(most=MOST_BEFORE_THE_KILL)

        def look(view: TaskView) -> None:
            on_look(view)
            self._check_worker()
            if self._stored is None and _is_speaking(view):
                self._kill_worker(view.task.id)

        return self.dubbing.wait(task.id, timeout=LONGEST_SECONDS, on_look=look)

    def audit(self, task_id: str) -> Ledger:
        """Compare the table of segments with the voice's log."""
        found = self.dubbing.segments(task_id)
        stored = self._stored or []
        wanted = [repr(segment.mt_text) for segment in found]
        often = spoken_in(self._book)
        again = [text for segment in stored if often[text := repr(segment.mt_text)] > wanted.count(text)]
        return Ledger(
            segments=len(found),
            spoken=sum(segment.tts_audio_key is not None for segment in found),
            stored_before_the_kill=len(stored),
            spoken_again=len(again),
            attempts_to_speak=sum(row.step == "tts" for row in self.dubbing.attempts(task_id)),
        )

    def _kill_worker(self, task_id: str) -> None:
        worker = self._worker
        if worker is None:
            return
        worker.kill()
        worker.wait()
        found = self.dubbing.segments(task_id)
        self._stored = [segment for segment in found if segment.tts_audio_key is not None]
        self._say(
            f"Killed the worker (process {worker.pid}, SIGKILL) in the middle of tts: {len(self._stored)} of "
            f"{len(found)} segments are stored. Its lease ends within {LEASE_SECONDS} s; then another takes over."
        )
        started = self._start_worker()
        self._say(f"Started another worker (process {started.pid}).")

    def _start_worker(self, *, most: float = math.inf) -> subprocess.Popen[bytes]:
        """Start a worker that speaks at most `most` segments."""
        self._started += 1
        environment = self._environment | {MOST_VARIABLE: str(most)}
        with (self.folder / f"worker-{self._started}.log").open("ab") as log:
            # -P: keep modules in the current folder from shadowing the demo's imports.
            command = [sys.executable, "-P", "-m", "stagepost_dubbing", "worker"]
            self._worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        return self._worker

    def _check_worker(self) -> None:
        if self._worker is not None and self._worker.poll() is not None:
            log = self.folder / f"worker-{self._started}.log"
            last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
            raise DubbingError("\n".join([f"the worker died unexpectedly. The end of {log}:", *last]))

    def _stop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None or worker.poll() is not None:
            return
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _is_speaking(view: TaskView) -> bool:
    """Return whether a third of the segments, or as many as this worker will speak, are stored, but not all."""
    [(stored, all_of_them)] = [step.segments or (0, 0) for step in view.steps if step.step == "tts"]
    return min(all_of_them / 3, MOST_BEFORE_THE_KILL) <= stored < all_of_them


def _environment(folder: Path, book: Path) -> dict[str, str]:
    """Build the environment of the demo and its workers, without the user's own Stagepost settings."""
    foreign: Sequence[str] = ("STAGEPOST_", "DUBBING_", "TTS_", "TRANSLATE_", "TIMEOUT_", "ESPEAK_", "MOONSHINE_")
    mine = {name: value for name, value in os.environ.items() if not name.startswith(tuple(foreign))}
    return mine | {
        "DUBBING_HOME": str(folder),
        "DUBBING_VOICE": "stagepost_dubbing.demo.voice:BookedVoice",
        BOOK_VARIABLE: str(book),
        PACE_VARIABLE: str(PACE_SECONDS),
        "TTS_MAX_CONCURRENCY": "1",
        "STAGEPOST_LEASE_SECONDS": str(LEASE_SECONDS),
        "STAGEPOST_POLL_SHORTEST_SECONDS": "0.05",
        "STAGEPOST_SHUTDOWN_TIMEOUT_SECONDS": "5",
    }
