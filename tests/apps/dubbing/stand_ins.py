"""Engines without weights, whose faults a test chooses by files, so that it can do so in other processes as well.

`STAND_INS` names a directory. `calls.log` there has a line for every call. A file `fail-<what>` makes that call fail
as it says: `permanent`, `temporary`, or `die` for the process; with `-once` the file is taken away first.
`hold-<what>` keeps a call until the file is gone. `slow-ffmpeg` names a file that ffmpeg takes very long to write.
"""

from __future__ import annotations

import math
import os
import signal
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stagepost import Permanent, Retryable
from stagepost_dubbing.engines.interfaces import Speech, Utterance

__all__ = ["SENTENCES", "Control", "StandInRecogniser", "StandInTranslator", "StandInVoice", "write_ffmpeg"]

SENTENCES = ("alpha one", "bravo two", "charlie three", "delta four", "echo five")
RATE = 16_000


class Control:
    """The directory by which a test governs its engines."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def fail(self, what: str, how: str) -> None:
        (self.directory / f"fail-{what}").write_text(how)

    def mend(self, what: str) -> None:
        (self.directory / f"fail-{what}").unlink(missing_ok=True)

    def hold(self, what: str) -> None:
        (self.directory / f"hold-{what}").touch()

    def release(self, what: str) -> None:
        (self.directory / f"hold-{what}").unlink(missing_ok=True)

    def slow_ffmpeg(self, file: str) -> None:
        """Let an ffmpeg that writes this file take very long."""
        (self.directory / "slow-ffmpeg").write_text(file)

    def hasten_ffmpeg(self) -> None:
        (self.directory / "slow-ffmpeg").unlink()

    @property
    def calls(self) -> list[str]:
        """What was called, in order."""
        file = self.directory / "calls.log"
        return file.read_text().splitlines() if file.exists() else []

    def called(self, what: str, *, check: Callable[[], None] = lambda: None) -> None:
        """Note a call, and do to it what the test wants."""
        with (self.directory / "calls.log").open("a") as file:
            file.write(f"{what}\n")
        while (self.directory / f"hold-{what}").exists():
            check()
            threading.Event().wait(0.02)
        fault = self.directory / f"fail-{what}"
        if not fault.exists():
            return
        how, _, times = fault.read_text().partition("-")
        if times == "once":
            fault.unlink()
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        raise (Permanent if how == "permanent" else Retryable)(f"{what} is broken")


def write_ffmpeg(program: Path, control: Control, real: str) -> None:
    """Write a program that is the real ffmpeg, but for how fast it reads when the test wants it slow."""
    slow = control.directory / "slow-ffmpeg"
    program.write_text(
        f"""#!/bin/sh
        if [ -e {slow} ]; then
            case "$*" in *"/$(cat {slow}).part"*) exec {real} -readrate 0.01 "$@" ;; esac
        fi
        exec {real} "$@"
        """
    )
    program.chmod(0o755)


class StandInRecogniser:
    """Hears the same five sentences in everything."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control = Control(Path(environment["STAND_INS"]))

    def recognise(self, audio: Path, *, language: str, while_running: Callable[[float], None]) -> Sequence[Utterance]:
        assert audio.stat().st_size > 44, language
        self._control.called("asr", check=lambda: while_running(0.5))
        return [Utterance(0.2 + 1.2 * idx, 1.2 + 1.2 * idx, text) for idx, text in enumerate(SENTENCES)]


class StandInTranslator:
    """Says everything in capitals."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control = Control(Path(environment["STAND_INS"]))

    def translate(self, texts: Sequence[str], *, source: str, target: str) -> Sequence[str]:
        assert source != target
        for text in texts:
            self._control.called(f"translate-{text.partition(' ')[0]}")
        return [text.upper() for text in texts]


class StandInVoice:
    """Hums."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control = Control(Path(environment["STAND_INS"]))

    def speak(self, text: str, *, language: str, speaker: str, seconds: float | None) -> Speech:
        self._control.called(f"tts-{text.partition(' ')[0].lower()}")
        tone = 200 + 10 * len(text)
        length = int(RATE * (seconds or 1) * 0.9)
        samples = [round(8000 * math.sin(2 * math.pi * tone * at / RATE)) for at in range(length)]
        facts = {"engine": "stand-in", "language": language, "voice": speaker}
        return Speech(struct.pack(f"<{length}h", *samples), RATE, facts)
