"""Talks whose words and times are known, spoken by a synthetic voice."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagepost_dubbing.sound import Sound, wav_bytes

RATE = 16_000
SENTENCES = (
    "Good morning, and welcome to this short talk about reliable software.",
    "Today we look at what happens when a computer stops in the middle of its work.",
    "First, every task is written down before anybody starts to work on it.",
    "Then a worker takes the task, and promises to finish it within a certain time.",
    "If the worker dies, the promise runs out, and another worker takes over.",
    "Nothing is lost, and nothing is done twice.",
    "That is the whole idea, and it is simpler than it sounds.",
    "Thank you very much for listening, and enjoy the rest of the day.",
)


class Talk(NamedTuple):
    """Sound, and where in it each sentence is."""

    samples: NDArray[np.int16]
    times: tuple[tuple[float, float], ...]
    sentences: tuple[str, ...]

    def save(self, path: Path) -> Path:
        """Write it as a WAV file."""
        path.write_bytes(wav_bytes(Sound.from_pcm(self.samples.tobytes(), RATE)))
        return path


def talk(sentences: tuple[str, ...] = SENTENCES, *, pause: float = 0.7) -> Talk:
    """Speak sentences with pauses between them."""
    at, times, pieces = 0.5, [], [np.zeros(RATE // 2, np.int16)]
    for sentence in sentences:
        sound = speak_english(sentence)
        times.append((at, at + len(sound) / RATE))
        pieces += [sound, np.zeros(int(pause * RATE), np.int16)]
        at += (len(sound) + int(pause * RATE)) / RATE
    return Talk(np.concatenate(pieces), tuple(times), sentences)


@functools.cache
def speak_english(sentence: str) -> NDArray[np.int16]:
    """Speak one sentence, without silence around it."""
    sound = np.asarray(_voice()(sentence, seed=0), dtype=np.float64)
    length = int(len(sound) * RATE / 24_000)
    smooth = np.convolve(sound, [0.25, 0.5, 0.25], mode="same")  # what 16 kHz cannot hold would fold back as noise
    resampled = np.interp(np.arange(length) * 24_000 / RATE, np.arange(len(sound)), smooth)
    samples: NDArray[np.int16] = (np.clip(resampled, -1, 1) * 30_000).astype(np.int16)
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > 300)
    return samples[loud[0] : loud[-1] + 1]


@functools.cache
def _voice() -> Any:
    from hibari import Hibari

    return Hibari()
