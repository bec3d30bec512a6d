"""Engines that give recorded answers at once, so that all the CPU time that is left is that of what is around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from stagepost_dubbing.engines.interfaces import Speech, Utterance

__all__ = ["Answers", "ReplayRecogniser", "ReplayTranslator", "ReplayVoice", "replay_variables"]

VARIABLE = "REPLAY_ANSWERS"


class Answers(msgspec.Struct):
    """What engines said about a video."""

    said: list[Utterance]
    translations: dict[str, str]
    speeches: dict[str, Speech]

    def save(self, file: Path) -> None:
        """Keep it for later."""
        file.write_bytes(msgspec.json.encode(self))


class ReplayRecogniser:
    """Heard it before."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._answers = _load(environment)

    def recognise(self, *_: Path, while_running: Callable[[float], None], **__: str) -> Sequence[Utterance]:
        """Say what was said, and how far it is as often as an engine does."""
        for number in range(len(self._answers.said)):
            while_running(number / len(self._answers.said))
        return self._answers.said


class ReplayTranslator:
    """Translated it before."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._answers = _load(environment)

    def translate(self, texts: Sequence[str], *, source: str, target: str) -> Sequence[str]:  # noqa: ARG002
        """Look the texts up."""
        return [self._answers.translations[text] for text in texts]


class ReplayVoice:
    """Spoke it before."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._answers = _load(environment)

    def speak(self, text: str, *, language: str, speaker: str, seconds: float | None) -> Speech:  # noqa: ARG002
        """Look the sound up."""
        return self._answers.speeches[text]


def replay_variables(file: Path) -> dict[str, str]:
    """Settings of a process that replays a file."""
    here = "benchmarks.dubbing_replay"
    return {
        VARIABLE: str(file),
        "DUBBING_RECOGNISER": f"{here}:ReplayRecogniser",
        "DUBBING_TRANSLATOR": f"{here}:ReplayTranslator",
        "DUBBING_VOICE": f"{here}:ReplayVoice",
    }


def _load(environment: Mapping[str, str]) -> Answers:
    return msgspec.json.decode(Path(environment[VARIABLE]).read_bytes(), type=Answers)
