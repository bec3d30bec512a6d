"""Speeds up speech without changing its pitch."""

from __future__ import annotations

import numpy as np

from stagepost_dubbing.sound import Sound, Wave, to_samples, to_wave

__all__ = ["speed_up"]

_FRAME = 0.03
_SEARCH = 0.008


def speed_up(sound: Sound, speed: float) -> Sound:
    """Make a sound `speed` times as fast; the result has exactly `len / speed` samples and contains all words.

    This is waveform similarity overlap-add: frames are taken at wider steps than they are written, each from the
    place where it best continues the previous one.
    """
    wanted = round(len(sound.samples) / speed)
    if wanted >= len(sound.samples):
        return sound
    return Sound(to_samples(_overlap_add(to_wave(sound.samples), wanted, speed, sound.rate)), sound.rate)


def _overlap_add(source: Wave, wanted: int, speed: float, rate: int) -> Wave:
    half, search = int(rate * _FRAME / 2), int(rate * _SEARCH)
    size = 2 * half
    count = -(-wanted // half) + 1
    reach = round(count * half * speed) + 2 * (size + search)
    padded = np.pad(source, (half + search, max(0, reach - len(source))))
    softness = _one_over_loudness(padded, size)
    window = np.hanning(size + 1)[:size].astype(np.float32)
    result = np.zeros((count + 1) * half, dtype=np.float32)
    taken = search
    for number in range(count):
        if number:
            # The next frame is the nearby one that is most similar to what followed the last frame in the source.
            continuation = padded[taken + half : taken + half + size]
            ideal = round(number * half * speed)
            likeness = np.correlate(padded[ideal : ideal + size + 2 * search], continuation, mode="valid")
            taken = ideal + int(np.argmax(likeness * softness[ideal : ideal + len(likeness)]))
        result[number * half : number * half + size] += padded[taken : taken + size] * window
    return result[half : half + wanted]


def _one_over_loudness(numbers: Wave, size: int) -> Wave:
    """Compute a weight for every possible start of a frame, so that loud frames do not win by loudness alone."""
    power = np.cumsum(numbers * numbers, dtype=np.float64)
    return (1 / np.sqrt(np.maximum(power[size - 1 :] - np.pad(power, (1, 0))[:-size], 1e-6))).astype(np.float32)
