"""Recorded sound (mono, 16 bit): reading and writing WAV, resampling, and measuring levels."""

from __future__ import annotations

import io
import math
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from stagepost import Permanent

__all__ = [
    "SILENCE",
    "Sound",
    "Wave",
    "level",
    "opened_wav",
    "parse_wav",
    "read_wav",
    "resample",
    "resampled",
    "to_samples",
    "to_wave",
    "wav_bytes",
    "wav_level",
    "wav_seconds",
    "write_wav",
]

Samples: TypeAlias = npt.NDArray[np.int16]
Wave: TypeAlias = npt.NDArray[np.float32]
"""Samples as floating-point numbers from -1 to 1, for calculations."""

SILENCE = -60.0
"""Sound below this level, in decibels relative to full scale, counts as silence."""

_FRAME = 0.02
_GATE = -10.0
"""A frame this many decibels below the mean counts as a pause."""


class Sound(msgspec.Struct, frozen=True, eq=False):
    """A recording with one channel."""

    samples: Samples
    rate: int
    """Samples per second."""

    @classmethod
    def from_pcm(cls, samples: bytes, rate: int) -> Sound:
        """Create a sound from 16-bit little-endian samples, as engines return them."""
        return cls(np.frombuffer(samples, dtype="<i2").astype(np.int16), rate)

    @property
    def seconds(self) -> float:
        """Duration of the sound."""
        return len(self.samples) / self.rate


@contextmanager
def opened_wav(source: Path | bytes, name: str | None = None) -> Iterator[wave.Wave_read]:
    """Open WAV data from a file or memory; raises Permanent if it is not WAV. All WAV is read through this."""
    called = name or (source.name if isinstance(source, Path) else "the sound")
    try:
        file = wave.open(str(source) if isinstance(source, Path) else io.BytesIO(source), "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        raise Permanent(f"{called}: there is no such recording") from None
    except (wave.Error, EOFError) as error:
        raise Permanent(f"{called} is not a WAV file: {error}") from error
    with file:
        yield file


def read_wav(path: Path) -> Sound:
    """Read a whole file; raises Permanent if it is not 16-bit WAV."""
    return _read(path, path.name)


def parse_wav(data: bytes, name: str = "the sound") -> Sound:
    """Read WAV data from memory; raises Permanent if it is not 16-bit WAV."""
    return _read(data, name)


def write_wav(path: Path, sound: Sound) -> None:
    """Write a sound as a WAV file."""
    path.write_bytes(wav_bytes(sound))


def wav_bytes(sound: Sound) -> bytes:
    """Encode a sound as WAV data."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sound.rate)
        file.writeframes(sound.samples.astype("<i2").tobytes())
    return buffer.getvalue()


def wav_seconds(path: Path) -> float:
    """Return the duration of a WAV file without reading its samples."""
    with opened_wav(path) as file:
        return file.getnframes() / file.getframerate()


def _read(source: Path | bytes, name: str) -> Sound:
    with opened_wav(source, name) as file:
        channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
        data = file.readframes(file.getnframes())
    if width != 2 or rate <= 0:
        raise Permanent(f"{name} has {8 * width} bits per sample at {rate} Hz; only 16 bits are supported.")
    samples = np.frombuffer(data[: len(data) // (2 * channels) * 2 * channels], dtype="<i2").reshape(-1, channels)
    mono = samples[:, 0] if channels == 1 else samples.mean(axis=1).round()
    return Sound(mono.astype(np.int16), rate)


def to_wave(samples: Samples) -> Wave:
    """Convert samples to numbers from -1 to 1."""
    return samples.astype(np.float32) / np.float32(32768)


def to_samples(numbers: Wave) -> Samples:
    """Convert numbers back to 16-bit samples; values that are too loud are clipped."""
    scaled: Wave = np.rint(numbers * np.float32(32768))
    return scaled.clip(-32768, 32767).astype(np.int16)


def resample(sound: Sound, rate: int) -> Sound:
    """Convert a sound to another sample rate."""
    return sound if sound.rate == rate else Sound(to_samples(resampled(to_wave(sound.samples), sound.rate, rate)), rate)


def resampled(numbers: Wave, rate: int, wanted: int) -> Wave:
    """Change the sample rate in the frequency domain; band-limited, and accurate in length to half a sample."""
    if rate == wanted or not len(numbers):
        return numbers
    shared = math.gcd(rate, wanted)
    down, up = rate // shared, wanted // shared
    # Trailing silence keeps the end from leaking into the beginning; whole multiples keep the ratio exact.
    blocks = -(-(len(numbers) + rate // 50) // down)
    spectrum = np.fft.rfft(numbers, _smooth(blocks) * down)
    wide = np.zeros(_smooth(blocks) * up // 2 + 1, dtype=spectrum.dtype)
    shared_bins = min(len(spectrum), len(wide))
    wide[:shared_bins] = spectrum[:shared_bins]
    result = np.fft.irfft(wide, _smooth(blocks) * up) * (wanted / rate)
    return result[: round(len(numbers) * wanted / rate)].astype(np.float32)


def _smooth(number: int) -> int:
    """Return the next small multiple of a power of two, because transforms of such lengths are fast."""
    step = 1 << max(0, number.bit_length() - 4)
    return -(-number // step) * step


def level(sound: Sound) -> float:
    """Measure the loudness outside pauses, in decibels relative to full scale; -inf if all is silent."""
    return _decibels(_power(sound.samples, sound.rate))


def wav_level(path: Path) -> float:
    """Measure a WAV file like `level`, without holding it in memory."""
    with opened_wav(path) as file:
        rate = file.getframerate()
        blocks = iter(lambda: file.readframes(rate * 60), b"")
        heard = [_power(np.frombuffer(block, dtype="<i2").astype(np.int16), rate) for block in blocks]
    return _decibels(np.concatenate(heard)) if heard else -math.inf


def _power(samples: Samples, rate: int) -> Wave:
    """Compute the power of every frame that is not silent."""
    size = min(max(1, int(rate * _FRAME)), max(1, len(samples)))
    numbers = to_wave(samples[: len(samples) // size * size]).reshape(-1, size)
    power: Wave = (numbers * numbers).mean(axis=1)
    return power[power > 10 ** (SILENCE / 10)]


def _decibels(power: Wave) -> float:
    """Average the frames that contain speech; quiet background noise between sentences does not count."""
    if not len(power):
        return -math.inf
    counted = power[power >= power.mean(dtype=np.float64) * 10 ** (_GATE / 10)]
    return 10 * math.log10(float(counted.mean(dtype=np.float64)))
