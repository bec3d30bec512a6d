"""Talks for tests: made once a session, of 10, 27 and 60 seconds."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from stagepost_dubbing.media.ffmpeg import Ffmpeg, find_ffmpeg
from stagepost_dubbing.media.talk import Speak, Talk, make_talk, speaker

__all__ = ["ffmpeg", "talk", "voice"]


@lru_cache(maxsize=1)
def ffmpeg() -> Ffmpeg:
    """The ffmpeg that tests use."""
    return find_ffmpeg()


@lru_cache(maxsize=1)
def voice() -> Speak:
    """Loads for seconds, so it is loaded once."""
    return speaker()


@lru_cache(maxsize=1)
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="stagepost-talks-", ignore_cleanup_errors=True)


@lru_cache(maxsize=8)
def talk(seconds: int = 10) -> Talk:
    """A talk that nobody may change; copy it first. The folder goes when the session ends."""
    return make_talk(ffmpeg(), Path(_folder().name, f"talk{seconds}.mp4"), seconds=seconds, speak=voice())
