"""Finds the parts of a recording that contain speech; the same sound always gives the same parts.

A recogniser gets one part at a time. Its own division of a recording may differ from call to call, but a repeated
attempt must produce the same segments as the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagepost_dubbing.engines.packages import import_engine

__all__ = ["RATE", "Part", "Pauses", "find_parts", "join_parts", "split_part", "trim_part"]

RATE = 16_000
"""Samples per second of all sound in this module."""
FRAME = 480
"""Samples per decision of the detector, 30 ms."""
STEP = 160
"""Samples per measurement of loudness, 10 ms."""

Samples = NDArray[np.int16]


class Part(NamedTuple):
    """A stretch of sound, in samples."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """Number of samples."""
        return self.end - self.start


class Pauses(NamedTuple):
    """Parameters for dividing speech, in seconds."""

    pause: float = 0.4
    """A silence at least this long ends a part."""
    shortest: float = 1.0
    """A shorter part is joined to a nearby neighbour."""
    longest: float = 15.0
    """A longer part is split at its quietest place."""
    near: float = 1.2
    """Neighbours further apart than this are never joined."""
    blip: float = 0.1
    """Anything shorter is a click, not speech."""


def find_parts(samples: Samples, pauses: Pauses = Pauses()) -> list[Part]:  # noqa: B008 (it cannot change)
    """Divide a recording into parts with speech, in order and without overlap."""
    levels = loudness(samples)
    parts = join_runs(_runs(voiced_frames(samples)), gap=int(pauses.pause * RATE))
    heard = above_noise(levels)
    parts = [trim_part(Part(part.start, min(part.end, len(samples))), heard) for part in parts]
    parts = join_parts([part for part in parts if part.length >= pauses.blip * RATE], pauses)
    return [piece for part in parts for piece in split_part(part, levels, pauses)]


def voiced_frames(samples: Samples) -> list[bool]:
    """Run the detector on every frame; uses a new detector, because it keeps state."""
    detector = import_engine("webrtcvad", extra="moonshine").Vad(2)
    whole = len(samples) // FRAME
    return [
        detector.is_speech(samples[frame * FRAME : (frame + 1) * FRAME].astype("<i2").tobytes(), RATE)
        for frame in range(whole)
    ]


def _runs(voiced: Sequence[bool]) -> Iterator[Part]:
    at = 0
    for is_voiced, frames in itertools.groupby(voiced):
        length = sum(1 for _ in frames)
        if is_voiced:
            yield Part(at * FRAME, (at + length) * FRAME)
        at += length


def join_runs(runs: Iterator[Part], *, gap: int) -> list[Part]:
    """Close gaps that are too short to be a pause."""
    joined: list[Part] = []
    for run in runs:
        if joined and run.start - joined[-1].end < gap:
            joined[-1] = Part(joined[-1].start, run.end)
        else:
            joined.append(run)
    return joined


def loudness(samples: Samples) -> NDArray[np.float64]:
    """Measure the mean square of every 10 ms, including a shorter rest at the end."""
    steps = -(-len(samples) // STEP)
    levels = np.zeros(steps)
    for first in range(0, steps, 6000):  # a minute at a time, so that hours of sound are never floats all at once
        piece = samples[first * STEP : (first + 6000) * STEP].astype(np.float64)
        piece = np.pad(piece, (0, -len(piece) % STEP))
        levels[first : first + 6000] = (piece.reshape(-1, STEP) ** 2).mean(axis=1)
    return levels


def above_noise(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Set to zero levels that are hardly above the quietest tenth, and 30 dB below the loudest place."""
    sounding = levels[levels > 0]
    if not len(sounding):
        return levels
    limit = min(float(np.percentile(sounding, 10)) * 8, float(np.max(sounding)) * 1e-3)
    return np.where(levels > limit, levels, 0.0)


def trim_part(part: Part, levels: NDArray[np.float64]) -> Part:
    """Move both ends to where the sound is, because the detector starts early and stops late.

    Anything less than 40 dB below the part's loudest place counts as sound.
    """
    first, last = part.start // STEP, -(-part.end // STEP)
    inside = levels[first:last]
    if not len(inside) or not inside.any():
        return Part(part.start, part.start)
    loud = np.flatnonzero(inside > np.max(inside) * 1e-4)
    start, end = first + int(loud[0]), first + int(loud[-1]) + 1
    return Part(max(part.start, start * STEP), min(part.end, end * STEP))


def join_parts(parts: Sequence[Part], pauses: Pauses) -> list[Part]:
    """Join each part that is too short to its nearest neighbour, unless that is far or the result is too long."""
    joined = list(parts)
    at = 0
    while at < len(joined):
        if joined[at].length >= pauses.shortest * RATE:
            at += 1
            continue
        nearest = _nearest_neighbour(joined, at, pauses)
        if nearest is None:
            at += 1
            continue
        first = min(at, nearest)
        joined[first : first + 2] = [Part(joined[first].start, joined[first + 1].end)]
        at = first
    return joined


def _nearest_neighbour(parts: Sequence[Part], at: int, pauses: Pauses) -> int | None:
    candidates = []
    for neighbour in (at - 1, at + 1):
        if 0 <= neighbour < len(parts):
            left, right = parts[min(at, neighbour)], parts[max(at, neighbour)]
            gap = right.start - left.end
            if gap <= pauses.near * RATE and right.end - left.start <= pauses.longest * RATE:
                candidates.append((gap, neighbour))
    return min(candidates)[1] if candidates else None


def split_part(part: Part, levels: NDArray[np.float64], pauses: Pauses) -> list[Part]:
    """Split a part that is too long at its quietest place, recursively."""
    if part.length <= pauses.longest * RATE:
        return [part]
    cut = _quietest_place(part, levels, pauses)
    left, right = trim_part(Part(part.start, cut), levels), trim_part(Part(cut, part.end), levels)
    return [piece for half in (left, right) if half.length for piece in split_part(half, levels, pauses)]


def _quietest_place(part: Part, levels: NDArray[np.float64], pauses: Pauses) -> int:
    """Find the quietest 200 ms that leave neither side too short; the first of several."""
    margin = int(min(pauses.shortest * RATE, part.length // 4))
    first, last = (part.start + margin) // STEP, (part.end - margin) // STEP
    around = np.convolve(levels[first - 10 : last + 10], np.ones(20) / 20, mode="same")[10:-10]
    return (first + int(np.argmin(around))) * STEP
