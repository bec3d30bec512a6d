"""What a dubbed video must be like, measured on the video itself, and what is left in directories."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stagepost_dubbing import Segment
from stagepost_dubbing.media.extracting import extract_audio
from stagepost_dubbing.media.ffmpeg import find_ffmpeg
from stagepost_dubbing.media.muxing import video_checksum
from stagepost_dubbing.media.probe import probe
from stagepost_dubbing.sound import read_wav, wav_level

__all__ = ["check_dubbed", "files_in", "left_in", "word_error_rate"]

WINDOW_SECONDS = 0.01
QUIET_DB = -35.0
"""Below the loudest window, what counts as silence."""
LOUDER_DB = 3.0
"""How much louder or quieter than the original a dub may be."""


def word_error_rate(said: str, heard: str) -> float:
    """How many words must be put in, taken out or replaced, per word that was said."""
    wanted, found = _words(said), _words(heard)
    row = list(range(len(found) + 1))
    for at, word in enumerate(wanted, 1):
        last, row[0] = row[0], at
        for other, candidate in enumerate(found, 1):
            last, row[other] = row[other], min(row[other] + 1, row[other - 1] + 1, last + (word != candidate))
    return row[-1] / len(wanted)


def check_dubbed(source: Path, dubbed: Path, segments: Sequence[Segment], *, directory: Path) -> None:
    """Demand the same pictures, length and loudness, and speech that begins with its slots and ends before the next."""
    ffmpeg = find_ffmpeg()
    before, after = probe(ffmpeg, source), probe(ffmpeg, dubbed)
    assert video_checksum(ffmpeg, dubbed) == video_checksum(ffmpeg, source)
    assert abs(after.duration - before.duration) <= 0.1, (before, after)
    sounds = [_sound_of(video, directory / f"{video.stem}.wav") for video in (source, dubbed)]
    assert abs(wav_level(sounds[1]) - wav_level(sounds[0])) <= LOUDER_DB
    is_loud = _loud_windows(sounds[1])
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        start = segment.start_ms / 1000
        end = after.duration if following is None else following.start_ms / 1000
        heard = np.flatnonzero(is_loud[round((start - 0.15) / WINDOW_SECONDS) : round(end / WINDOW_SECONDS)])
        assert heard.size, f"segment {segment.idx} is not heard"
        begins = start - 0.15 + heard[0] * WINDOW_SECONDS
        assert abs(begins - start) <= 0.15, f"segment {segment.idx} begins at {begins:.2f} instead of {start:.2f}"
        if following is not None:
            ends = start - 0.15 + heard[-1] * WINDOW_SECONDS
            assert ends < end - 0.02, f"segment {segment.idx} reaches into the next"


def files_in(directory: Path) -> list[str]:
    """Every file, those that no store would list as well."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())


def left_in(directory: Path) -> list[str]:
    """Files and directories that should have gone; some may go meanwhile, at which `rglob` would fail."""
    walked = [(Path(parent), [*directories, *files]) for parent, directories, files in os.walk(directory)]
    return sorted(str((parent / name).relative_to(directory)) for parent, names in walked for name in names)


def _sound_of(video: Path, audio: Path) -> Path:
    extract_audio(find_ffmpeg(), video, audio, seconds=60)
    return audio


def _loud_windows(audio: Path) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    sound = read_wav(audio)
    size = int(sound.rate * WINDOW_SECONDS)
    windows = sound.samples[: len(sound.samples) // size * size].astype(np.float64).reshape(-1, size)
    level = np.sqrt((windows**2).mean(axis=1))
    loud: np.ndarray[tuple[int], np.dtype[np.bool_]] = level > level.max() * 10 ** (QUIET_DB / 20)
    return loud


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())
