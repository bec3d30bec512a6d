"""Runs ffmpeg, from the system or from `imageio-ffmpeg`, with a deadline; kills it when its job should stop."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import IO, cast

import msgspec

from stagepost import Permanent, Retryable
from stagepost.errors import ConfigurationError

__all__ = ["Ffmpeg", "Finished", "Watch", "find_ffmpeg", "nothing", "reading", "tail", "whole_file"]

Watch = Callable[[], None]
"""Called about ten times a second while ffmpeg runs; raises if the work should stop."""

CONTAINERS = "mov", "matroska", "webm", "avi", "mpegts", "mpeg", "flv", "asf", "ogg", "wav", "mp3", "flac", "aac"
"""Formats that ffmpeg may open. Playlists are excluded, because they make it read other files or the network."""

HINTS = "gif", "png_pipe", "jpeg_pipe", "webp_pipe", "bmp_pipe", "srt", "webvtt", "ass", "h264", "hevc", "m4v"
"""Formats that are opened only to explain what the file is instead of a video."""

_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_NOT_STARTED = {126, 127}
"""Exit codes of a guard that cannot start the program."""
_ORIGIN = re.compile(r"\[[^\]]* @ 0x[0-9a-f]+\] ?")
_KEPT = 256 * 1024
_INTERVAL = 0.1


def nothing() -> None:
    """Do nothing, so that the work continues."""


class Finished(msgspec.Struct, frozen=True):
    """The result of running ffmpeg."""

    code: int
    log: str
    """The end of its standard error."""


class Ffmpeg(msgspec.Struct, frozen=True):
    """An ffmpeg program."""

    program: str
    guard: tuple[str, ...] = ()
    """Command that starts it, so that it ends with this process even if this process is killed."""

    def run(self, arguments: Sequence[str], *, seconds: float, while_running: Watch = nothing) -> Finished:
        """Run ffmpeg to its end; raises Retryable if it exceeds `seconds`, is killed, or the disk is full."""
        # Without a guard, a killed worker leaves ffmpeg running; the limit of processor time ends it even then.
        limit = ["-timelimit", str(int(seconds) * (os.cpu_count() or 1) + 1)]
        with self._started(["-nostdin", "-hide_banner", "-nostats", "-y", *limit, *arguments]) as process:
            log = _read(cast("IO[bytes]", process.stderr), seconds=seconds, while_running=while_running)
            code = process.wait()
        if self.guard and code in _NOT_STARTED:
            raise ConfigurationError(f"{self.program} cannot be started: {log.strip()}. {_REMEDY}")
        if -code in _CRASHES:
            raise Permanent(
                f"ffmpeg crashed on {_input(arguments)}. Convert it first, or try another version of ffmpeg."
            )
        if code < 0 or (code == 255 and "received signal" in log):
            raise Retryable(f"ffmpeg was killed (exit code {code}). Is memory short?{tail(log)}")
        if code and "No space left on device" in log:
            raise Retryable("ffmpeg failed because the disk is full. Free space in the directory for temporary files.")
        return Finished(code, log)

    @contextmanager
    def _started(self, arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        try:
            process = subprocess.Popen(
                [*self.guard, self.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigurationError(f"{self.program} cannot be started: {error}. {_REMEDY}") from error
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


_REMEDY = (
    "Install ffmpeg on this machine, or `pip install 'stagepost-dubbing[ffmpeg]'`, or name the program in the settings."
)


def find_ffmpeg(program: str | None = None) -> Ffmpeg:
    """Find the named program, or else the system's, or else the one in `imageio-ffmpeg`."""
    found = shutil.which(program or "ffmpeg")
    if found is None and program is None:
        found = _bundled()
    if found is None:
        raise ConfigurationError(f"There is no {program or 'ffmpeg'}. {_REMEDY}")
    return Ffmpeg(found, _guard())


@cache
def _guard() -> tuple[str, ...]:
    """Return a command that makes Linux kill ffmpeg with its parent, if `setpriv` supports that."""
    program = shutil.which("setpriv")
    if program is None:
        return ()
    guard = (program, "--pdeathsig", "KILL")
    done = subprocess.run([*guard, program, "--version"], capture_output=True, check=False)
    return guard if done.returncode == 0 else ()


def _bundled() -> str | None:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    try:
        return str(get_ffmpeg_exe())
    except RuntimeError:
        return None


def reading(path: Path) -> list[str]:
    """Return options that open only this file, and no other file or network address through it."""
    name = str(path)
    if not name.isprintable():
        raise Permanent(f"The name {name!r} contains characters that cannot be printed. Rename the file.")
    return ["-protocol_whitelist", "file", "-format_whitelist", ",".join((*CONTAINERS, *HINTS)), "-i", f"file:{name}"]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Provide a temporary path to write to, which is moved to `path` on success and removed on failure."""
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def tail(log: str, lines: int = 3) -> str:
    """Quote the end of a log, without the addresses at the start of ffmpeg's lines."""
    said = [line.strip() for line in _ORIGIN.sub("", log).splitlines() if line.strip()]
    return f" ffmpeg said: {' / '.join(said[-lines:])}" if said else ""


def _input(arguments: Sequence[str]) -> str:
    return Path(arguments[arguments.index("-i") + 1]).name if "-i" in arguments else "its input"


def _read(stream: IO[bytes], *, seconds: float, while_running: Watch) -> str:
    """Read a stream until the program closes it; returns its end."""
    deadline = perf_counter() + seconds
    kept = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            ready = selector.select(_INTERVAL)
            if ready and not (block := os.read(stream.fileno(), 65536)):
                return kept.decode(errors="replace")
            if ready:
                kept = (kept + block)[-_KEPT:]
            while_running()
            if perf_counter() > deadline:
                raise Retryable(
                    f"ffmpeg took longer than {seconds:g} s and was stopped.{tail(kept.decode(errors='replace'))}"
                )
