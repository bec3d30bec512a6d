"""The demo's voice: espeak-ng, slowed down so that people can follow, with a log of what it spoke."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from threading import Event

from stagepost_dubbing.engines.choose import choose_voice
from stagepost_dubbing.engines.interfaces import Speech

__all__ = ["BOOK_VARIABLE", "MOST_VARIABLE", "PACE_VARIABLE", "BookedVoice", "spoken_in"]

BOOK_VARIABLE = "DUBBING_DEMO_BOOK"
PACE_VARIABLE = "DUBBING_DEMO_PACE"
MOST_VARIABLE = "DUBBING_DEMO_MOST"
"""Limits how many texts the first worker speaks, so that it cannot finish before it is killed."""


class BookedVoice:
    """Speaks with espeak-ng, waits a moment, and logs what it spoke."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._voice = choose_voice("espeak", environment)
        self._book = Path(environment[BOOK_VARIABLE])
        self._pace = float(environment.get(PACE_VARIABLE, "0"))
        self._most = float(environment.get(MOST_VARIABLE, "inf"))
        self._texts: set[str] = set()

    def speak(self, text: str, *, language: str, speaker: str, seconds: float | None) -> Speech:
        """Speak a text and log it."""
        if text not in self._texts and len(self._texts) >= self._most:
            Event().wait()
        self._texts.add(text)
        speech = self._voice.speak(text, language=language, speaker=speaker, seconds=seconds)
        Event().wait(self._pace)
        with self._book.open("ab", buffering=0) as book:
            book.write(f"{text!r}\n".encode())
        return speech


def spoken_in(book: Path) -> Counter[str]:
    """Count how often each text was spoken."""
    return Counter(book.read_text(encoding="utf-8").splitlines() if book.exists() else [])
