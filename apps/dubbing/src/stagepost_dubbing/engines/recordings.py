"""Reads the sound that recognisers get: WAV, 16 kHz, mono, 16 bit."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stagepost import Permanent
from stagepost_dubbing.engines.interfaces import Speech

__all__ = ["read_recording", "read_speech", "wav_of"]


def read_recording(path: Path, *, rate: int = 16_000) -> NDArray[np.int16]:
    """Return the samples; refuse a file of another kind, for the step before it makes this one."""
    try:
        with wave.open(str(path), "rb") as file:
            kind = (file.getframerate(), file.getnchannels(), file.getsampwidth())
            sound = file.readframes(file.getnframes())
    except FileNotFoundError:
        raise Permanent(f"{path.name}: there is no such recording") from None
    except (wave.Error, EOFError) as error:
        raise Permanent(f"{path.name} is no WAV file that can be read: {error}") from None
    if kind != (rate, 1, 2):
        raise Permanent(
            f"{path.name} has {kind[0]} Hz, {kind[1]} channels and {kind[2] * 8} bits; "
            f"recognisers take {rate} Hz, 1 channel and 16 bits"
        )
    return np.frombuffer(sound[: len(sound) // 2 * 2], dtype="<i2").astype(np.int16, copy=False)


def read_speech(sound: bytes, parameters: dict[str, str | int | float]) -> Speech:
    """Make a speech of the WAV that a service sent; ValueError says what is wrong with it."""
    try:
        with wave.open(io.BytesIO(sound), "rb") as file:
            if (file.getnchannels(), file.getsampwidth()) != (1, 2):
                raise ValueError(f"it has {file.getnchannels()} channels and {file.getsampwidth() * 8} bits")
            announced, rate = file.getnframes(), file.getframerate()
            samples = file.readframes(announced)
    except (wave.Error, EOFError) as error:
        raise ValueError(f"it is no WAV file: {error}") from None
    if not 8_000 <= rate <= 192_000:
        raise ValueError(f"it has {rate} samples per second")
    # A service that streams does not know the length when it begins, and writes the largest number.
    if announced * 2 > len(samples) and announced < 0x7FFF_0000:
        raise ValueError(f"it ends after {len(samples) // 2} of {announced} samples")
    if len(samples) < 2:
        raise ValueError("there is no sound in it")
    return Speech(samples=samples[: len(samples) // 2 * 2], rate=rate, parameters=parameters)


def wav_of(samples: bytes, *, rate: int) -> bytes:
    """Write 16-bit mono samples as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(rate)
        wav.writeframes(samples)
    return file.getvalue()
