"""A dub is about as loud as the original, measured on the videos themselves."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from stagepost_dubbing.media.extracting import extract_audio
from stagepost_dubbing.sound import read_wav
from tests.apps.dubbing.conftest import MakeDubbing
from tests.apps.dubbing.talks import ffmpeg
from tests.apps.dubbing.workers import dubbed


def loudness(video: Path, directory: Path, spans: list[tuple[float, float]]) -> float:
    """The root of the mean square of these spans, in decibels below full scale."""
    extract_audio(ffmpeg(), video, directory / "heard.wav", seconds=60)
    sound = read_wav(directory / "heard.wav")
    parts = [sound.samples[round(start * sound.rate) : round(end * sound.rate)] for start, end in spans]
    numbers = np.concatenate(parts).astype(np.float64) / 32768
    return 10 * math.log10(float((numbers**2).mean()))


@pytest.mark.parametrize("change_db", [-9, 3])
def test_a_dub_is_as_loud_as_the_original(
    make_dubbing: MakeDubbing, small_video: Path, tmp_path: Path, change_db: int
) -> None:
    video, output = tmp_path / "video.mp4", tmp_path / "dubbed.mp4"
    arguments = ["-i", str(small_video), "-c:v", "copy", "-af", f"volume={change_db}dB", "-c:a", "aac", str(video)]
    assert ffmpeg().run(arguments, seconds=60).code == 0
    dubbing = make_dubbing()

    task = dubbed(dubbing, video)
    dubbing.save(task.id, output)

    # The stand-in hums for nine tenths of each slot.
    spans = [(one.start_ms / 1000 + 0.1, one.start_ms / 1000 + 0.8) for one in dubbing.segments(task.id)]
    assert loudness(output, tmp_path, spans) == pytest.approx(loudness(video, tmp_path, spans), abs=1)
