"""Reads facts about a video file, without ffprobe, and checks that it can be dubbed."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import msgspec

from stagepost import Permanent
from stagepost_dubbing.media.completeness import missing_bytes, starts_like_mp4
from stagepost_dubbing.media.ffmpeg import Ffmpeg, Watch, nothing, reading

__all__ = ["Limits", "MediaFacts", "check_dubbable", "measure", "probe"]

FITS_MP4 = frozenset(
    {"h264", "hevc", "av1", "vp9", "mpeg4", "mpeg2video", "mpeg1video", "mjpeg", "vvc", "dirac", "vc1"}
)
"""Video codecs that can be copied unchanged into the output, which is MP4."""

_AT_ONCE = 0.05
_CONTAINER = re.compile(r"^Input #0, (.+?), from '", re.MULTILINE)
_DURATION = re.compile(r"^  Duration: (?:(\d+):(\d\d):(\d\d\.\d+)|N/A)(?:, start: (-?[\d.]+))?", re.MULTILINE)
_STREAM = re.compile(r"^  Stream #0:\d+.*?: (Video|Audio|Subtitle|Data): (\w+)(.*)$", re.MULTILINE)
_SIZE = re.compile(r", (\d+)x(\d+)[ ,]")
_REFUSED = re.compile(r"^\[([\w,]+) @ \S+\] Format not on whitelist", re.MULTILINE)


class MediaFacts(msgspec.Struct, frozen=True):
    """Facts about a media file."""

    container: str
    bytes: int
    duration: float
    """Duration of the longest stream, in seconds."""
    start: float
    """The earliest timestamp; all other times count from it."""
    has_video: bool
    has_audio: bool
    video_codec: str | None
    audio_codec: str | None
    """Codec of the first sound track."""
    audio_tracks: int
    width: int
    height: int


class Limits(msgspec.Struct, frozen=True):
    """Maximum length, size and picture size of a video."""

    longest: float = 4 * 3600.0
    """Seconds."""
    largest: int = 16 * 1024**3
    """Bytes."""
    most_pixels: int = 8192 * 4352


def probe(ffmpeg: Ffmpeg, path: Path, *, seconds: float = 60, while_running: Watch = nothing) -> MediaFacts:
    """Read the file's headers; raises Permanent if it is not a media file, or is truncated."""
    arguments = reading(path)
    size = _size(path)
    log = ffmpeg.run(arguments, seconds=seconds, while_running=while_running).log
    if (missing := missing_bytes(path)) > 0:
        raise Permanent(
            f"{path.name} is only a part of a file: {missing:,} bytes are missing at its end. Upload it again."
        )
    found = _CONTAINER.search(log)
    if found is None:
        raise Permanent(_why_not(path, log))
    dump = log[found.start() :]
    facts = _facts(found[1], size, dump)
    # Recordings made by browsers do not state their length; for those that do not start at 0, it is unclear
    # whether the time before the start is included.
    if facts.duration == 0 or abs(facts.start) > _AT_ONCE:
        ends = [
            measure(ffmpeg, path, stream, seconds=seconds, while_running=while_running) for stream in ("V:0", "a:0")
        ]
        facts = msgspec.structs.replace(facts, duration=max(ends))
    return facts


def measure(ffmpeg: Ffmpeg, path: Path, stream: str, *, seconds: float, while_running: Watch = nothing) -> float:
    """Measure a stream's length by reading the whole file, whatever the header says; 0 if there is no such stream."""
    with tempfile.TemporaryDirectory(prefix="stagepost-") as folder:
        progress = Path(folder, "progress")
        counted = ["-map", f"0:{stream}", "-c", "copy", "-f", "null", "-progress", f"file:{progress}", "-"]
        ffmpeg.run(["-v", "error", *reading(path), *counted], seconds=seconds, while_running=while_running)
        ends = re.findall(r"^out_time_us=(\d+)$", progress.read_text() if progress.exists() else "", re.MULTILINE)
    return int(ends[-1]) / 1e6 if ends else 0.0


def check_dubbable(path: Path, facts: MediaFacts, limits: Limits | None = None) -> None:
    """Raise Permanent if the video cannot be dubbed, or exceeds a limit."""
    limits = limits or Limits()
    if reason := _objection(facts, limits):
        raise Permanent(f"{path.name} cannot be dubbed: {reason}")


def _objection(facts: MediaFacts, limits: Limits) -> str | None:
    if facts.bytes > limits.largest:
        return f"it has {facts.bytes:,} bytes; the limit is {limits.largest:,}."
    if not facts.has_video:
        return f"there is no video in it ({facts.container})."
    if not facts.has_audio:
        return "there is no sound in it."
    if facts.duration <= 0:
        return "it lasts 0 s."
    if facts.duration > limits.longest:
        return f"it states a length of {facts.duration:,.0f} s; the limit is {limits.longest:,.0f} s."
    if facts.width * facts.height > limits.most_pixels:
        return f"its picture is {facts.width}x{facts.height}; the limit is {limits.most_pixels:,} pixels."
    if facts.video_codec not in FITS_MP4:
        return f"its video is {facts.video_codec}, which does not fit in MP4. Convert it to H.264 first."
    return None


def _size(path: Path) -> int:
    if not path.exists():
        raise Permanent(f"There is no file {path.name}.")
    if not path.is_file():
        raise Permanent(f"{path.name} is not a file.")
    if (size := path.stat().st_size) == 0:
        raise Permanent(f"{path.name} is empty: it has 0 bytes.")
    return size


def _why_not(path: Path, log: str) -> str:
    if refused := _REFUSED.search(log):
        return f"{path.name} is not a video: its format is {refused[1]!r}, which is not accepted."
    if starts_like_mp4(path):
        return f"{path.name} is only a part of a video: the index of its content (moov) is missing. Upload it again."
    return f"{path.name} is not a video: its format is unknown."


def _facts(container: str, size: int, dump: str) -> MediaFacts:
    duration, start = _times(dump)
    streams = [(kind, codec, rest) for kind, codec, rest in _STREAM.findall(dump) if "(attached pic)" not in rest]
    pictures = [(codec, rest) for kind, codec, rest in streams if kind == "Video"]
    sounds = [codec for kind, codec, rest in streams if kind == "Audio"]
    sizes = [_SIZE.search(rest + ",") for _, rest in pictures[:1]]
    width, height = (int(sizes[0][1]), int(sizes[0][2])) if sizes and sizes[0] else (0, 0)
    return MediaFacts(
        container=container,
        bytes=size,
        duration=duration,
        start=start,
        has_video=bool(pictures),
        has_audio=bool(sounds),
        video_codec=pictures[0][0] if pictures else None,
        audio_codec=sounds[0] if sounds else None,
        audio_tracks=len(sounds),
        width=width,
        height=height,
    )


def _times(dump: str) -> tuple[float, float]:
    found = _DURATION.search(dump)
    if found is None or found[1] is None:
        return 0.0, 0.0
    return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3]), float(found[4] or 0)
