"""Lays spoken sentences on one track, at one level, with the original quietly below them if that is wanted."""

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
"""How loud a voice is, in decibels below full scale; above the loudest, its peaks could not be recorded."""

_BLOCK = 10.0
_FADE = 0.1
_BREATH = 0.6
"""A pause that is shorter does not bring the original up again."""
_MOST_GAIN = 20.0
_LOUDEST = 0.891
"""-1 dB: encoders overshoot a little."""


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
    """Write the track as WAV, and say how long it is: `duration`, or more if the last sentence ends later.

    `load` gives the speech of a sentence; it is called once for each, in order, so that few are in memory at a time.
    Every speech is brought to `level_db`; None leaves them as they are. `under` is the original sound as WAV of the
    same rate; it is lowered by `duck_db` wherever somebody speaks, in the original or instead of it.
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
    """How loud the voice is to be: as loud as the original, unless that can hardly be heard or is too loud."""
    return USUAL_DB if original_db is None else min(max(original_db, QUIETEST_DB), LOUDEST_DB)


class _Speeches:
    """The speeches as one long track, of which one block after the other is asked for."""

    def __init__(
        self, placed: Sequence[Placed], load: Callable[[int], Sound], rate: int, level_db: float | None
    ) -> None:
        self.waiting = [(index, one) for index, one in enumerate(placed) if one.seconds > 0][::-1]
        self.load, self.rate, self.level_db = load, rate, level_db
        self.sounding: list[tuple[int, Wave]] = []

    def between(self, first: int, size: int) -> Wave:
        """The samples from `first` on."""
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
    """What brings a speech to the level, but never beyond what can be recorded."""
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
    """The next samples, and silence after the end."""
    block = np.zeros(size, dtype=np.float32)
    numbers = to_wave(np.frombuffer(original.readframes(size), dtype="<i2").astype(np.int16))
    block[: len(numbers)] = numbers
    return block


def _ducked(placed: Sequence[Placed], first: int, size: int, rate: int, duck_db: float) -> Wave:
    """How loud the original is at each sample: low while somebody speaks, with a fade before and after."""
    times, gains = [-1.0], [1.0]
    low = 10 ** (duck_db / 20)
    for start, end in _spoken(placed):
        times += [start - _FADE, start, end, end + _FADE]
        gains += [1.0, low, low, 1.0]
    return np.interp(np.arange(first, first + size) / rate, times, gains).astype(np.float32)


def _spoken(placed: Sequence[Placed]) -> Iterator[tuple[float, float]]:
    """When somebody speaks, in the original or instead of it."""
    spans = sorted((min(one.slot.start, one.start), max(one.slot.end, one.end)) for one in placed)
    while spans:
        start, end = spans.pop(0)
        while spans and spans[0][0] <= end + _BREATH:
            end = max(end, spans.pop(0)[1])
        yield start, end
