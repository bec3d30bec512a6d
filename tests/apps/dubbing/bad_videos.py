"""Files that people and attackers upload as videos, and what is said about each; some only look bad, and work."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tests.apps.dubbing.talks import ffmpeg, session_folder, talk

__all__ = ["BAD", "GOOD", "UPLOADS", "Case", "sources"]

_SIZE = "320x180"
_SECONDS = 3


class Case(NamedTuple):
    """A file that is made in a folder, and the sentence about it: a regular expression, None if it works."""

    name: str
    make: Callable[[Path], None]
    sentence: str | None


def _ffmpeg(*arguments: str | Path) -> None:
    done = ffmpeg().run(["-v", "error", *map(str, arguments)], seconds=120)
    assert done.code == 0, done.log


@lru_cache(maxsize=1)
def sources() -> Path:
    """A folder with small whole videos of which the bad ones are made."""
    folder = session_folder("bad-videos")
    picture = ["-f", "lavfi", "-i", f"testsrc2=size={_SIZE}:rate=25:duration={_SECONDS}"]
    coded = ["-c:v", "mpeg4", "-c:a", "aac", "-t", str(_SECONDS)]
    _ffmpeg(*picture, "-i", talk(10).path, "-map", "0:v", "-map", "1:a", *coded, folder / "end.mp4")
    _ffmpeg("-i", folder / "end.mp4", "-c", "copy", "-movflags", "+faststart", folder / "front.mp4")
    _ffmpeg("-i", folder / "end.mp4", "-c", "copy", folder / "whole.mkv")
    _ffmpeg("-i", folder / "end.mp4", "-c", "copy", folder / "whole.avi")
    _ffmpeg("-i", folder / "end.mp4", "-c", "copy", "-movflags", "empty_moov+frag_keyframe", folder / "parts.mp4")
    # Copied from the middle: the picture before it comes along, at negative times.
    _ffmpeg("-ss", "0.5", "-i", folder / "end.mp4", "-c", "copy", folder / "cut.mp4")
    return folder


def _source(name: str) -> bytes:
    return (sources() / name).read_bytes()


def _bytes(data: bytes | Callable[[], bytes]) -> Callable[[Path], None]:
    return lambda path: _write(path, data if isinstance(data, bytes) else data())


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _cut(source: str, part: float) -> Callable[[Path], None]:
    return lambda path: _write(path, _source(source)[: int(len(_source(source)) * part)])


def _made(*arguments: str, container: str = "mp4", source: str = "front.mp4") -> Callable[[Path], None]:
    """Make it by ffmpeg from a whole one."""
    return lambda path: _ffmpeg("-i", sources() / source, *arguments, "-f", container, f"file:{path}")


def _painted(*arguments: str, container: str) -> Callable[[Path], None]:
    """Make it by ffmpeg from a test picture and silence."""
    silence = ["-f", "lavfi", "-i", "anullsrc=r=48000:cl=mono"]
    return lambda path: _ffmpeg(*silence, *arguments, "-f", container, f"file:{path}")


def _nothing(path: Path) -> None:
    """Make no file."""


def _slower(factor: int) -> bytes:
    """An MP4 that says everywhere that it lasts longer: in its headers, and of every picture and piece of sound."""
    data = bytearray(_source("front.mp4"))
    for box, offset in ((b"mvhd", 20), (b"mdhd", 20), (b"tkhd", 24), (b"elst", 12)):
        for at in _places(data, box):
            _multiply(data, at + offset, factor)
    for at in _places(data, b"stts"):
        (entries,) = struct.unpack_from(">I", data, at + 8)
        for number in range(entries):
            _multiply(data, at + 16 + 8 * number, factor)
    return bytes(data)


def _places(data: bytearray, box: bytes) -> list[int]:
    return [match.start() for match in re.finditer(box, data)]


def _multiply(data: bytearray, at: int, factor: int) -> None:
    struct.pack_into(">I", data, at, struct.unpack_from(">I", data, at)[0] * factor)


def _matroska_of(seconds: float) -> bytes:
    """A Matroska file whose header says how long it is."""
    data = bytearray(_source("whole.mkv"))
    at = data.index(b"\x44\x89\x88")
    struct.pack_into(">d", data, at + 3, seconds * 1000)
    return bytes(data)


def _elsewhere() -> bytes:
    """An MP4 whose content is said to be in another file."""
    data = bytearray(_source("front.mp4"))
    for at in _places(data, b"url \x00\x00\x00\x01"):
        data[at : at + 8] = b"url \x00\x00\x00\x00"
    return bytes(data)


def _header_alone() -> bytes:
    data = _source("parts.mp4")
    return data[: data.index(b"moof") - 4]


def _picture() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = zlib.compress(b"".join(b"\x00" + bytes(8) for _ in range(8)))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _noise(count: int) -> bytes:
    """Looks encrypted, and is the same every time."""
    state, found = b"noise", b""
    while len(found) < count:
        state = struct.pack(">QQ", zlib.crc32(state) * 2654435761 % 2**64, zlib.adler32(state) * 40503 % 2**64)
        found += state
    return found


def _damaged() -> bytes:
    data = bytearray(_source("front.mp4"))
    middle = data.index(b"mdat") + len(data) // 3
    data[middle : middle + 300] = bytes(300)
    return bytes(data)


def _playlist(target: str) -> bytes:
    return f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{target}\n#EXT-X-ENDLIST\n".encode()


_DASH = b"""<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period>
<AdaptationSet mimeType="video/mp4"><Representation id="1"><BaseURL>secret.mp4</BaseURL></Representation>
</AdaptationSet></Period></MPD>"""
_SDP = b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\nc=IN IP4 127.0.0.1\r\nm=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n"
_HTML = b"<!DOCTYPE html><html><head><title>404 Not Found</title></head><body>Not here.</body></html>" * 20
_SRT = b"1\n00:00:00,000 --> 00:00:02,000\nHello.\n\n2\n00:00:02,000 --> 00:00:04,000\nBye.\n\n"
_KEY = "0123456789abcdef0123456789abcdef"
_CENC = ["-encryption_scheme", "cenc-aes-ctr", "-encryption_key", _KEY, "-encryption_kid", _KEY]
_NO_VIDEO = "cannot be dubbed: there is no video in it"
_PART = "is only a part of a "
_NOT = "is not a video: "
_COVER = ["-c:a", "aac", "-c:v", "png", "-frames:v", "1", "-disposition:v", "attached_pic"]
_CODED = ["-map", "0:a", "-c:a", "aac", "-map", "1:v", "-t", "1"]

BAD = [
    Case("missing.mp4", _nothing, r"There is no file missing\.mp4"),
    Case("folder.mp4", lambda path: path.mkdir(), "is not a file"),
    Case("pipe.mp4", os.mkfifo, "is not a file"),
    Case("empty.mp4", _bytes(b""), "is empty: it has 0 bytes"),
    Case("one-byte.mp4", _bytes(b"\x00"), _NOT),
    Case("text.mp4", _bytes(b"This is my holiday video.\n" * 50), _NOT),
    Case("page.mp4", _bytes(_HTML), _NOT),
    Case("archive.mp4", _bytes(b"PK\x03\x04" + _noise(5000)), _NOT),
    Case("noise.mp4", _bytes(_noise(50_000)), f"{_NOT}|{_NO_VIDEO}"),
    Case("zeros.mp4", _bytes(bytes(100_000)), f"{_NOT}|{_NO_VIDEO}"),
    Case("picture.mp4", _bytes(_picture), "cannot be dubbed: there is no sound"),
    Case("animation.mp4", _made("-an", container="gif"), "there is no sound in it"),
    Case("subtitles.mp4", _bytes(_SRT), _NO_VIDEO),
    Case("without-sound.mp4", _made("-an", "-c", "copy"), "there is no sound in it"),
    Case("without-picture.mp4", _made("-vn", "-c", "copy"), _NO_VIDEO),
    Case("song.mp4", _made("-vn", "-c:a", "libmp3lame", container="mp3"), _NO_VIDEO),
    Case("recording.mp4", _made("-vn", container="wav"), _NO_VIDEO),
    Case("song-with-cover.mp4", _made("-map", "0:a", "-map", "0:v", *_COVER), _NO_VIDEO),
    Case("silent.mp4", _made("-c:v", "copy", "-af", "volume=0"), "silent from beginning to end"),
    Case("half.mp4", _cut("front.mp4", 0.5), _PART),
    Case("nearly-whole.mp4", _cut("front.mp4", 0.99), _PART),
    Case("half-without-index.mp4", _cut("end.mp4", 0.5), _PART),
    Case("cut-in-index.mp4", _cut("end.mp4", 0.995), _PART),
    Case("cut-in-first-box.mp4", _bytes(lambda: _source("front.mp4")[:20]), _PART),
    Case("first-box-alone.mp4", _bytes(lambda: _source("front.mp4")[:32]), f"{_PART}video: the index"),
    Case("half-matroska.mp4", _cut("whole.mkv", 0.5), _PART),
    Case("half-avi.mp4", _cut("whole.avi", 0.5), _PART),
    Case("header-alone.mp4", _bytes(_header_alone), "it lasts 0 s"),
    Case(
        "ten-hours.mp4",
        _bytes(lambda: _slower(12_000)),
        r"it states a length of 3\d,\d\d\d s; the limit is 14,400 s",
    ),
    Case("ten-hours-matroska.mp4", _bytes(lambda: _matroska_of(36_000)), "it states a length of 36,000 s; the limit"),
    Case(
        "one-hour-matroska.mp4",
        _bytes(lambda: _matroska_of(3600)),
        r"states a length of 3,600 s, but its picture ends after 3",
    ),
    Case(
        "gigantic.mp4",
        _painted("-f", "lavfi", "-i", "color=size=9000x5000:rate=1", *_CODED, "-c:v", "mjpeg", container="mp4"),
        "its picture is 9000x5000; the limit is 35,651,584 pixels",
    ),
    Case(
        "other-codec.mp4",
        _made("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus", container="webm"),
        "its video is vp8, which does not fit in MP4. Convert it",
    ),
    Case(
        "encrypted.mp4",
        _made("-c", "copy", *_CENC),
        r"cannot be read: it is damaged, or encrypted|can be read for only|silent",
    ),
    Case("list-of-files.mp4", _bytes(b"ffconcat version 1.0\nfile secret.mp4\n"), f"{_NOT}.*'concat'"),
    Case("playlist-of-file.m3u8", _bytes(_playlist("secret.mp4")), f"{_NOT}.*'hls'"),
    Case("playlist-of-system-file.m3u8", _bytes(_playlist("file:///etc/passwd")), f"{_NOT}.*'hls'"),
    Case("playlist-of-address.m3u8", _bytes(_playlist("http://127.0.0.1:1/a.ts")), f"{_NOT}.*'hls'"),
    Case("playlist.mp4", _bytes(_playlist("secret.mp4")), _NOT),
    Case("dash.mpd", _bytes(_DASH), _NOT),
    Case("session.mp4", _bytes(_SDP), _NOT),
    Case("pictures-%03d.png", _bytes(_picture), "there is no sound in it|is not a video"),
    Case("name\nwith a line.mp4", _cut("front.mp4", 1), "contains characters that cannot be printed"),
    Case("nul\0.mp4", _nothing, "contains characters that cannot be printed"),
]

_VP9 = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus"]

NO_FILES = {"missing.mp4", "folder.mp4", "pipe.mp4", "nul\0.mp4", "name\nwith a line.mp4"}
"""Refused before they are stored; the last has nothing wrong but its name, which it has not in the store."""
UPLOADS = [case for case in BAD if case.name not in NO_FILES]
"""Bad files that can be stored."""

GOOD = [
    Case("matroska-named.mp4", _cut("whole.mkv", 1), None),
    Case("avi-named.mp4", _cut("whole.avi", 1), None),
    Case("parts.mp4", _cut("parts.mp4", 1), None),
    Case("UPPER.MOV", _made("-c", "copy", container="mov"), None),
    Case("no-extension", _cut("front.mp4", 1), None),
    Case("-y.mp4", _cut("front.mp4", 1), None),
    Case("concat:a|b %d 'ü' \"视频\".mp4", _cut("front.mp4", 1), None),
    Case("old.mp4", _made("-c:v", "mpeg2video", "-c:a", "mp2", container="mpeg"), None),
    Case("browser.webm", _made(*_VP9, "-live", "1", container="webm"), None),
    Case("flash.flv", _made("-c:v", "libx264", "-preset", "ultrafast", "-c:a", "copy", container="flv"), None),
    Case("two-tracks.mp4", _made("-map", "0:v", "-map", "0:a", "-map", "0:a", "-c", "copy"), None),
    Case("stereo.mp4", _made("-c:v", "copy", "-ac", "2", "-ar", "44100"), None),
    Case(
        "variable-rate.mp4",
        _made("-vf", "select='not(mod(n,7))+lt(mod(n,11),3)'", "-fps_mode", "vfr", "-c:a", "copy"),
        None,
    ),
    Case("b-frames.mp4", _made("-c:v", "libx264", "-bf", "3", "-c:a", "copy"), None),
    Case("late-start.mp4", _made("-c", "copy", "-output_ts_offset", "5"), None),
    Case("late-start.mkv", _made("-c", "copy", "-output_ts_offset", "5", container="matroska"), None),
    Case("negative-times.mp4", _cut("cut.mp4", 1), None),
    Case("trailing-bytes.mp4", _bytes(lambda: _source("front.mp4") + b"\x00" * 700), None),
    Case("damaged.mp4", _bytes(_damaged), None),
    Case("elsewhere.mp4", _bytes(_elsewhere), None),
    Case("longer-header.mp4", _bytes(lambda: _matroska_of(3.5)), None),
]
