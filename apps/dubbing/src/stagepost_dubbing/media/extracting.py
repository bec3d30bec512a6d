"""Extracts the sound of a video."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stagepost import Permanent
from stagepost_dubbing.media.ffmpeg import Ffmpeg, Watch, nothing, reading, tail, whole_file
from stagepost_dubbing.media.probe import Limits, MediaFacts, check_dubbable, measure, probe
from stagepost_dubbing.sound import SILENCE, opened_wav, wav_seconds

__all__ = ["extract_audio"]

_BLOCK = 1 << 20


def extract_audio(
    ffmpeg: Ffmpeg,
    video: Path,
    audio: Path,
    *,
    seconds: float,
    while_running: Watch = nothing,
    limits: Limits | None = None,
    rate: int = 16_000,
) -> MediaFacts:
    """Write the first sound track as WAV (mono, 16 bit), synchronous with the video.

    Raises Permanent, and writes nothing, if the file cannot be dubbed.
    """
    limits = limits or Limits()
    facts = probe(ffmpeg, video, seconds=seconds, while_running=while_running)
    check_dubbable(video, facts, limits)
    with whole_file(audio) as part:
        arguments = [*reading(video), *_sound_to(part, rate, limits.longest), *_VIDEO_BESIDE]
        done = ffmpeg.run(["-v", "error", *arguments], seconds=seconds, while_running=while_running)
        if done.code or not part.exists():
            fault = "cannot be read: it is damaged, or encrypted."
            raise Permanent(f"The sound of {video.name} ({facts.audio_codec}) {fault}{tail(done.log)}")
        _check_sound(video, part, facts, done.log)
        if wav_seconds(part) < _nearly(facts):
            end = measure(ffmpeg, video, "V:0", seconds=seconds, while_running=while_running)
            _check_picture(video, end, facts)
        _check_audible(video, part)
    return facts


_VIDEO_BESIDE = ["-map", "0:V:0", "-c", "copy", "-f", "null", "-"]
"""Reads the video too, because ffmpeg counts time from the first packet that it reads."""


def _sound_to(path: Path, rate: int, longest: float) -> list[str]:
    # Fill gaps and a late start with silence.
    steady = ["-af", "aresample=async=1:first_pts=0", "-ac", "1", "-ar", str(rate), "-c:a", "pcm_s16le"]
    return ["-map", "0:a:0", *steady, "-t", f"{longest:g}", "-bitexact", "-f", "wav", f"file:{path}"]


def _nearly(facts: MediaFacts) -> float:
    """Return the time before which a stream counts as ending early."""
    return facts.duration - max(1.0, 0.02 * facts.duration)


def _check_sound(video: Path, audio: Path, facts: MediaFacts, log: str) -> None:
    """Refuse sound that breaks off with errors; sound that merely ends before the picture is accepted."""
    end = wav_seconds(audio)
    if end == 0:
        raise Permanent(f"{video.name} cannot be dubbed: its sound track is empty.{tail(log)}")
    if log.strip() and end < _nearly(facts):
        raise Permanent(
            f"The sound of {video.name} can be read for only {end:.1f} s of {facts.duration:.1f} s.{tail(log)}"
        )


def _check_picture(video: Path, end: float, facts: MediaFacts) -> None:
    """Refuse a file that states a wrong length, because the dubbed track would get that length."""
    if end < _nearly(facts):
        raise Permanent(
            f"{video.name} states a length of {facts.duration:,.0f} s, but its picture ends after {end:,.1f} s, "
            f"and so does its sound. Upload it again, or repair it."
        )


def _check_audible(video: Path, audio: Path) -> None:
    quiet = round(32768 * 10 ** (SILENCE / 20))
    with opened_wav(audio) as file:
        while block := file.readframes(_BLOCK):
            if np.abs(np.frombuffer(block, dtype="<i2").astype(np.int32)).max() > quiet:
                return
    raise Permanent(f"{video.name} cannot be dubbed: its sound is silent from beginning to end.")
