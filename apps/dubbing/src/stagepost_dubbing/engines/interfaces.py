"""What a recogniser, a translator and a voice must do; everything else about them is theirs.

An engine raises `stagepost.Permanent` for input that no other try can mend, and `stagepost.Retryable` (with
`after`, if it was told) for trouble that may pass. Anything else it raises is tried again.
Engines are called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

__all__ = ["Recogniser", "Speech", "Translator", "Utterance", "Voice"]


class Utterance(msgspec.Struct, frozen=True):
    """Something that was said, and when; times are seconds from the beginning."""

    start: float
    end: float
    text: str


class Speech(msgspec.Struct, frozen=True):
    """A text as a voice speaks it."""

    samples: bytes
    """16-bit little-endian mono PCM."""
    rate: int
    """Samples per second."""
    parameters: Mapping[str, str | int | float]
    """With what it was made: engine, voice, speed. Kept with the segment."""

    @property
    def seconds(self) -> float:
        """How long it takes to say."""
        return len(self.samples) / 2 / self.rate


class Recogniser(Protocol):
    """Writes down what is said in a recording."""

    def recognise(self, audio: Path, *, language: str, while_running: Callable[[float], None]) -> Sequence[Utterance]:
        """Say what is said in a WAV file (16 kHz, mono, 16 bit), in order of time.

        `while_running` is called now and then with the part that is done, 0 to 1; it raises if the work should stop.
        """
        ...


class Translator(Protocol):
    """Turns texts into another language."""

    def translate(self, texts: Sequence[str], *, source: str, target: str) -> Sequence[str]:
        """Translate each text; as many come back, in the same order."""
        ...


class Voice(Protocol):
    """Speaks a text."""

    def speak(self, text: str, *, language: str, speaker: str, seconds: float | None) -> Speech:
        """Speak it, if possible within `seconds`: faster where needed, but never so fast that nobody understands it.

        A speech that is still too long is returned as it is: the timeline decides what to do with it.
        """
        ...
