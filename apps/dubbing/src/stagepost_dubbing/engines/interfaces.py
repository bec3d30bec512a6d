"""The interfaces of recognisers, translators and voices.

An engine raises `stagepost.Permanent` for input that no retry can fix, and `stagepost.Retryable` (with `after`,
if known) for temporary problems. After any other exception, it is called again.
Engines are called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

__all__ = ["Recogniser", "Speech", "Translator", "Utterance", "Voice"]


class Utterance(msgspec.Struct, frozen=True):
    """Something that was said, with its time in seconds from the beginning."""

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
    """How it was made: engine, voice, speed. Stored with the segment."""

    @property
    def seconds(self) -> float:
        """Duration of the speech."""
        return len(self.samples) / 2 / self.rate


class Recogniser(Protocol):
    """Transcribes a recording."""

    def recognise(self, audio: Path, *, language: str, while_running: Callable[[float], None]) -> Sequence[Utterance]:
        """Transcribe a WAV file (16 kHz, mono, 16 bit), in order of time.

        Call `while_running` regularly with the completed share, from 0 to 1; it raises if the work should stop.
        """
        ...


class Translator(Protocol):
    """Translates texts into another language."""

    def translate(self, texts: Sequence[str], *, source: str, target: str) -> Sequence[str]:
        """Translate each text; returns the same number of texts, in the same order."""
        ...


class Voice(Protocol):
    """Speaks a text."""

    def speak(self, text: str, *, language: str, speaker: str, seconds: float | None) -> Speech:
        """Speak a text, if possible within `seconds`: faster if needed, but not so fast that it is unintelligible.

        Return a speech that is still too long as it is: the timeline decides what to do with it.
        """
        ...
