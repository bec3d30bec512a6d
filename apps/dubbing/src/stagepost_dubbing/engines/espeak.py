"""A voice for every language of espeak-ng, which adapts its pace to the available time.

Licence of espeak-ng: GPL 3 or later; see docs/dubbing/engines.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from stagepost import Permanent
from stagepost.errors import ConfigurationError
from stagepost_dubbing.engines import environment as read
from stagepost_dubbing.engines.espeak_library import Espeak, espeak
from stagepost_dubbing.engines.interfaces import Speech
from stagepost_dubbing.engines.languages import base_language, tidy_language
from stagepost_dubbing.engines.packages import require_package

__all__ = ["EspeakSettings", "EspeakVoice", "pace_that_fits"]

VOICES = {"en": "en-us", "fr": "fr-fr", "no": "nb", "pt": "pt-br", "pt-pt": "pt", "zh": "cmn", "zh-hk": "yue"}
"""Languages for which espeak-ng uses another code; an unknown region falls back to its language."""


@dataclass(frozen=True)
class EspeakSettings:
    """How fast the voice may speak, in words per minute."""

    pace: int = 175
    """Pace if no time is given."""
    slowest: int = 150
    fastest: int = 260

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read ESPEAK_WORDS_PER_MINUTE, ESPEAK_SLOWEST_WORDS_PER_MINUTE and ESPEAK_FASTEST_WORDS_PER_MINUTE."""

        def pace(name: str, default: int) -> int:
            return read.whole_number(environment, name, default, least=80, most=450)

        settings = cls(
            pace=pace("ESPEAK_WORDS_PER_MINUTE", 175),
            slowest=pace("ESPEAK_SLOWEST_WORDS_PER_MINUTE", 150),
            fastest=pace("ESPEAK_FASTEST_WORDS_PER_MINUTE", 260),
        )
        if not settings.slowest <= settings.pace <= settings.fastest:
            raise ConfigurationError(
                f"ESPEAK_SLOWEST_WORDS_PER_MINUTE ({settings.slowest}), ESPEAK_WORDS_PER_MINUTE ({settings.pace}) "
                f"and ESPEAK_FASTEST_WORDS_PER_MINUTE ({settings.fastest}) must be in ascending order"
            )
        return settings


class EspeakVoice:
    """Speaks with espeak-ng; `speaker` is `default` or a variant of it such as `f2` or `m3`."""

    def __init__(self, settings: EspeakSettings | None = None) -> None:
        require_package("espeakng_loader", extra="espeak")
        self.settings = settings or EspeakSettings()

    def speak(self, text: str, *, language: str, speaker: str, seconds: float | None) -> Speech:
        """Speak at the usual pace, and if needed a second time at the pace that fills `seconds`."""
        library = espeak()
        voice = _voice_of(language, speaker, library)
        pace = self.settings.pace
        sound = _speak_close(library, text, voice, pace)
        if seconds is not None and seconds > 0:
            taken = len(sound) / 2 / library.rate
            fitting = pace_that_fits(taken, seconds, self.settings)
            if abs(fitting - pace) > pace * 0.03:
                pace, sound = fitting, _speak_close(library, text, voice, fitting)
        parameters: dict[str, str | int | float] = {"engine": "espeak-ng", "voice": voice, "words_per_minute": pace}
        return Speech(samples=sound, rate=library.rate, parameters=parameters)


def pace_that_fits(taken: float, seconds: float, settings: EspeakSettings) -> int:
    """Compute the pace at which a text takes `seconds`, if it took `taken` at the usual pace, within the limits.

    The time is nearly inversely proportional to the pace; languages deviate by a few percent.
    """
    wished = settings.pace * taken / (seconds * 0.96)
    return round(min(max(wished, settings.slowest), settings.fastest))


def _voice_of(language: str, speaker: str, library: Espeak) -> str:
    code = tidy_language(language)
    base = base_language(code)
    names = (VOICES.get(code), code, VOICES.get(base), base)
    voice = next((library.voices[name] for name in names if name in library.voices), None)
    if voice is None:
        raise Permanent(f"espeak-ng has no voice for {language!r}; it has: {', '.join(sorted(library.voices))}")
    if speaker in {"", "default"}:
        return voice
    if speaker not in library.variants:
        known = ", ".join(sorted(library.variants))
        raise Permanent(f"espeak-ng has no speaker {speaker!r}; choose default, or one of: {known}")
    return f"{voice}+{speaker}"


def _speak_close(library: Espeak, text: str, voice: str, pace: int) -> bytes:
    """Speak without the silence that espeak-ng adds before and after; the result is never empty."""
    sound = np.frombuffer(library.say(text, voice=voice, words_per_minute=pace), dtype="<i2")
    around = library.rate // 50
    loud = np.flatnonzero(np.abs(sound.astype(np.int32)) > 100)
    if not len(loud):
        return bytes(2 * around)
    return sound[max(0, int(loud[0]) - around) : int(loud[-1]) + around].tobytes()
