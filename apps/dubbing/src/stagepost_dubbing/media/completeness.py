"""Detects truncated files by the sizes in their containers, because ffmpeg reads them without an error."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO

__all__ = ["missing_bytes", "starts_like_mp4"]

_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"uuid", b"styp", b"moof", b"sidx"})
_MATROSKA = b"\x1a\x45\xdf\xa3"
_SEGMENT = b"\x18\x53\x80\x67"
_MOST_BOXES = 100_000


def missing_bytes(path: Path) -> int:
    """Return how many bytes are missing at the file's end; 0 if it is complete or its size is not stated."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(12)
        file.seek(0)
        if head[4:8] in _BOXES:
            promised = _end_of_boxes(file, size)
        elif head.startswith(_MATROSKA):
            promised = _end_of_segment(file)
        elif head.startswith(b"RIFF") and head[8:12] == b"AVI ":
            promised = _end_of_riff(file, size)
        else:
            promised = 0
    return max(0, promised - size)


def starts_like_mp4(path: Path) -> bool:
    """Return whether the file begins like MP4 or MOV."""
    with path.open("rb") as file:
        return file.read(8)[4:] in _BOXES


def _end_of_boxes(file: IO[bytes], size: int) -> int:
    """Find the end of the boxes in MP4 and MOV; each box states its size."""
    end = 0
    for _ in range(_MOST_BOXES):
        file.seek(end)
        header = file.read(16)
        if len(header) < 8 or not header[4:8].isalnum():
            break  # The end, or unrelated bytes after it.
        (length,) = struct.unpack(">I", header[:4])
        if length == 1 and len(header) == 16:
            (length,) = struct.unpack(">Q", header[8:])
        if length == 0 or length < 8:
            break  # 0 means up to the end of the file.
        end += length
        if end >= size:
            break
    return end


def _end_of_segment(file: IO[bytes]) -> int:
    """Find the end of the segment in Matroska and WebM, after the header; a live recording does not state its size."""
    header = file.read(4096)
    at = 4
    length, width = _number(header, at)
    at += width + (length or 0)
    if header[at : at + 4] != _SEGMENT:
        return 0
    length, width = _number(header, at + 4)
    return 0 if length is None else at + 4 + width + length


def _number(data: bytes, at: int) -> tuple[int | None, int]:
    """Read a variable-width number; returns its value, or None if unknown, and its width."""
    if at >= len(data) or data[at] == 0:
        return None, 1
    width = 9 - data[at].bit_length()
    value = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
    return (None if value == (1 << 7 * width) - 1 else value), width


def _end_of_riff(file: IO[bytes], size: int) -> int:
    """Find the end of the RIFF chunks in AVI."""
    end = 0
    for _ in range(_MOST_BOXES):
        file.seek(end)
        header = file.read(8)
        if len(header) < 8 or header[:4] != b"RIFF":
            break
        (length,) = struct.unpack("<I", header[4:])
        end += 8 + length + length % 2
        if end >= size:
            break
    return end - 1 if end == size + 1 else end
