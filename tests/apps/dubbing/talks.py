"""Talks for tests: made once a session, of 10, 27 and 60 seconds."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import psutil

from stagepost_dubbing.media.ffmpeg import Ffmpeg, find_ffmpeg
from stagepost_dubbing.media.talk import Speak, Talk, make_talk, speaker

__all__ = ["ffmpeg", "no_process_stays", "session_folder", "talk", "voice"]


@lru_cache(maxsize=1)
def ffmpeg() -> Ffmpeg:
    """The ffmpeg that tests use."""
    return find_ffmpeg()


@lru_cache(maxsize=1)
def voice() -> Speak:
    """Loads for seconds, so it is loaded once."""
    return speaker()


@lru_cache(maxsize=8)
def session_folder(name: str) -> Path:
    """A folder that goes when the session ends."""
    folder = mkdtemp(prefix=f"stagepost-{name}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@lru_cache(maxsize=8)
def talk(seconds: int = 10) -> Talk:
    """A talk that nobody may change; copy it first."""
    return make_talk(ffmpeg(), session_folder("talks") / f"talk{seconds}.mp4", seconds=seconds, speak=voice())


@contextmanager
def no_process_stays() -> Iterator[None]:
    """What is started in the body has ended with it; servers of the session are none of its business."""
    before = psutil.Process().children()
    yield
    assert [process for process in psutil.Process().children() if process not in before] == []
