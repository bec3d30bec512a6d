"""Mixes spoken sentences into one track at one level, optionally with the lowered original below them."""

from __future__ import annotations

import wave
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from stagepost_dubbing.media.ffmpeg import Watch, nothing, whole_file
from stagepost_dubbing.media.stretching import speed_up
from stagepost_dubbing.media.timeline import Placed
from stagepost_dubbing.sound import Sound, Wave, level, opened_wav, resampled, to_samples, to_wave

__all__ = ["mix", "voice_level"]

USUAL_DB = -20.0
QUIETEST_DB = -32.0
LOUDEST_DB = -16.0
"""Range of a voice's level, in decibels relative to full scale; louder peaks would be clipped."""

_BLOCK = 10.0
_FADE = 0.1
_BREATH = 0.6
"""In shorter pauses, the original stays lowered."""
_MOST_GAIN = 20.0
_LOUDEST = 0.891
"""-1 dB, because encoders overshoot a little."""


def mix(
    track: Path,
    placed: Sequence[Placed],
    load: Callable[[int], Sound],
    *,
    duration: float,
    rate: int = 48_000,
    level_db: float | None = USUAL_DB,
    under: Path | None = None,
    duck_db: float = -18.0,
    while_running: Watch = nothing,
) -> float:
    """Write the track as WAV; returns its length, which is `duration` or more if the last sentence ends later.

    `load` returns the speech of a sentence. It is called once for each, in order, so that few are in memory at a
    time. Every speech is adjusted to `level_db`; None leaves it unchanged. `under` is the original sound as WAV of
    the same rate, which is lowered by `duck_db` during speech in the original or in the dub.
    """
    length = round(max([duration, *(one.end for one in placed)]) * rate)
    speeches = _Speeches(placed, load, rate, level_db)
    with whole_file(track) as part, wave.open(str(part), "wb") as file, _original(under, rate) as original:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        step = round(_BLOCK * rate)
        for first in range(0, length, step):
            while_running()
            size = min(step, length - first)
            block = speeches.between(first, size)
            if original is not None:
                block += _read(original, size) * _ducked(placed, first, size, rate, duck_db)
            file.writeframes(to_samples(block).astype("<i2").tobytes())
    return length / rate


def voice_level(original_db: float | None) -> float:
    """Return the level for the voice: that of the original, within limits."""
    return USUAL_DB if original_db is None else min(max(original_db, QUIETEST_DB), LOUDEST_DB)


class _Speeches:
    """The speeches as one long track, read block by block."""

    def __init__(
        self, placed: Sequence[Placed], load: Callable[[int], Sound], rate: int, level_db: float | None
    ) -> None:
        self.waiting = [(index, one) for index, one in enumerate(placed) if one.seconds > 0][::-1]
        self.load, self.rate, self.level_db = load, rate, level_db
        self.sounding: list[tuple[int, Wave]] = []

    def between(self, first: int, size: int) -> Wave:
        """Return `size` samples from `first` on."""
        while self.waiting and self._start(self.waiting[-1][1]) < first + size:
            index, one = self.waiting.pop()
            self.sounding.append((self._start(one), self._speech(self.load(index), one.speed)))
        block = np.zeros(size, dtype=np.float32)
        for start, speech in self.sounding:
            at = max(start - first, 0)
            part = speech[max(first - start, 0) :][: size - at]
            block[at : at + len(part)] += part
        self.sounding = [(start, speech) for start, speech in self.sounding if start + len(speech) > first + size]
        return block

    def _start(self, one: Placed) -> int:
        return round(one.start * self.rate)

    def _speech(self, sound: Sound, speed: float) -> Wave:
        gain = _gain(sound, self.level_db)
        faster = speed_up(sound, speed)
        return resampled(to_wave(faster.samples), faster.rate, self.rate) * gain


def _gain(sound: Sound, level_db: float | None) -> np.float32:
    """Compute the gain that brings a speech to the level without clipping."""
    loudest = float(np.abs(sound.samples.astype(np.int32)).max(initial=0)) / 32768
    if level_db is None or loudest == 0:
        return np.float32(1)
    wanted = 10 ** (min(level_db - level(sound), _MOST_GAIN) / 20)
    return np.float32(min(wanted, _LOUDEST / loudest))


@contextmanager
def _original(path: Path | None, rate: int) -> Iterator[wave.Wave_read | None]:
    if path is None:
        yield None
        return
    with opened_wav(path) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (rate, 1, 2):
            raise ValueError(f"{path.name} must have {rate} samples per second, one channel, 16 bits")
        yield file


def _read(original: wave.Wave_read, size: int) -> Wave:
    """Read the next samples, with silence after the end."""
    block = np.zeros(size, dtype=np.float32)
    numbers = to_wave(np.frombuffer(original.readframes(size), dtype="<i2").astype(np.int16))
    block[: len(numbers)] = numbers
    return block


def _ducked(placed: Sequence[Placed], first: int, size: int, rate: int, duck_db: float) -> Wave:
    """Compute the original's gain at each sample: lowered during speech, with a fade before and after."""
    times, gains = [-1.0], [1.0]
    low = 10 ** (duck_db / 20)
    for start, end in _spoken(placed):
        times += [start - _FADE, start, end, end + _FADE]
        gains += [1.0, low, low, 1.0]
    return np.interp(np.arange(first, first + size) / rate, times, gains).astype(np.float32)


def _spoken(placed: Sequence[Placed]) -> Iterator[tuple[float, float]]:
    """Yield the times of speech in the original or in the dub."""
    spans = sorted((min(one.slot.start, one.start), max(one.slot.end, one.end)) for one in placed)
    while spans:
        start, end = spans.pop(0)
        while spans and spans[0][0] <= end + _BREATH:
            end = max(end, spans.pop(0)[1])
        yield start, end
