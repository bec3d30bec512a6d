"""Checks the input of recognisers (WAV, 16 kHz, mono, 16 bit) and the sound that services send."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stagepost import Permanent
from stagepost_dubbing.engines.interfaces import Speech
from stagepost_dubbing.sound import opened_wav

__all__ = ["read_recording", "read_speech"]


def read_recording(path: Path, *, rate: int = 16_000) -> NDArray[np.int16]:
    """Return the samples; refuses another format, because the previous step always writes this one."""
    with opened_wav(path) as file:
        kind = (file.getframerate(), file.getnchannels(), file.getsampwidth())
        sound = file.readframes(file.getnframes())
    if kind != (rate, 1, 2):
        raise Permanent(
            f"{path.name} has {kind[0]} Hz, {kind[1]} channels and {kind[2] * 8} bits; "
            f"recognisers take {rate} Hz, 1 channel and 16 bits"
        )
    return np.frombuffer(sound[: len(sound) // 2 * 2], dtype="<i2").astype(np.int16, copy=False)


def read_speech(sound: bytes, parameters: dict[str, str | int | float]) -> Speech:
    """Convert a service's WAV data to a speech; raises ValueError if it is invalid."""
    try:
        with opened_wav(sound, "it") as file:
            kind = (file.getnchannels(), file.getsampwidth())
            announced, rate = file.getnframes(), file.getframerate()
            samples = file.readframes(announced)
    except Permanent as error:  # the answer is at fault, not the text
        raise ValueError(str(error)) from None
    if kind != (1, 2):
        raise ValueError(f"it has {kind[0]} channels and {kind[1] * 8} bits")
    if not 8_000 <= rate <= 192_000:
        raise ValueError(f"it has {rate} samples per second")
    # A streaming service does not know the length in advance, and writes the largest number.
    if announced * 2 > len(samples) and announced < 0x7FFF_0000:
        raise ValueError(f"it ends after {len(samples) // 2} of {announced} samples")
    if len(samples) < 2:
        raise ValueError("there is no sound in it")
    return Speech(samples=samples[: len(samples) // 2 * 2], rate=rate, parameters=parameters)
