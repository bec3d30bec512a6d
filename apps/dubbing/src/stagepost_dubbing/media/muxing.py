"""Puts a dubbed track into a video; the picture is copied unchanged."""

from __future__ import annotations

import tempfile
from pathlib import Path

from stagepost import Permanent
from stagepost_dubbing.media.ffmpeg import Ffmpeg, Watch, nothing, reading, tail, whole_file
from stagepost_dubbing.media.languages import three_letters
from stagepost_dubbing.media.probe import MediaFacts, probe

__all__ = ["mux", "video_checksum"]

_AAC = ["-c:a", "aac", "-b:a", "128k"]


def mux(
    ffmpeg: Ffmpeg,
    video: Path,
    track: Path,
    output: Path,
    *,
    language: str,
    seconds: float,
    while_running: Watch = nothing,
    original: str | None = None,
) -> MediaFacts:
    """Write `video` as MP4 with `track` as its sound; returns facts about the result.

    If `original` is given, it is the language of the original sound, which is kept as a second track.
    """
    facts = probe(ffmpeg, video, seconds=seconds, while_running=while_running)
    tracks = ["-map", "0:V:0", "-map", "1:a:0", *_AAC, *_tagged(0, language, "default")]
    if original is not None and facts.has_audio:
        tracks += ["-map", "0:a:0", *_tagged(1, original, "0")]
        tracks += ["-c:a:1", "copy"] if facts.audio_codec == "aac" else []
    with whole_file(output) as part:
        copied = ["-c:v", "copy", "-map_metadata", "0", "-map_chapters", "-1", "-movflags", "+faststart", "-f", "mp4"]
        arguments = [*reading(video), *reading(track), *tracks, *copied, f"file:{part}"]
        done = ffmpeg.run(["-v", "error", *arguments], seconds=seconds, while_running=while_running)
        if done.code:
            raise Permanent(f"{video.name} ({facts.video_codec}) cannot be written as MP4.{tail(done.log)}")
        return probe(ffmpeg, part, seconds=seconds, while_running=while_running)


def video_checksum(ffmpeg: Ffmpeg, path: Path, *, seconds: float = 60) -> str:
    """Compute a checksum of the video stream's packets, which is equal if the picture is unchanged."""
    with tempfile.TemporaryDirectory(prefix="stagepost-") as folder:
        written = Path(folder, "checksum")
        arguments = ["-map", "0:V:0", "-c", "copy", "-f", "streamhash", "-hash", "sha256", str(written)]
        done = ffmpeg.run(["-v", "error", *reading(path), *arguments], seconds=seconds)
        if done.code:
            raise Permanent(f"The video of {path.name} cannot be read.{tail(done.log)}")
        return written.read_text().strip().partition("=")[2]


def _tagged(number: int, language: str, disposition: str) -> list[str]:
    return [f"-metadata:s:a:{number}", f"language={three_letters(language)}", f"-disposition:a:{number}", disposition]
