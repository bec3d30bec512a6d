"""Engines that return recorded answers at once, so that only the overhead around them costs CPU time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from stagepost_dubbing.engines.interfaces import Speech, Utterance

__all__ = ["Answers", "ReplayRecogniser", "ReplayTranslator", "ReplayVoice", "replay_variables"]

VARIABLE = "REPLAY_ANSWERS"


class Answers(msgspec.Struct):
    """The engines' recorded answers for a video."""

    said: list[Utterance]
    translations: dict[str, str]
    speeches: dict[str, Speech]

    def save(self, file: Path) -> None:
        """Write the answers to a file."""
        file.write_bytes(msgspec.json.encode(self))


class ReplayRecogniser:
    """Returns the recorded transcript."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._answers = _load(environment)

    def recognise(self, *_: Path, while_running: Callable[[float], None], **__: str) -> Sequence[Utterance]:
        """Return the transcript, with progress reports as frequent as an engine's."""
        for number in range(len(self._answers.said)):
            while_running(number / len(self._answers.said))
        return self._answers.said


class ReplayTranslator:
    """Returns recorded translations."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._answers = _load(environment)

    def translate(self, texts: Sequence[str], *, source: str, target: str) -> Sequence[str]:  # noqa: ARG002
        """Look up the texts."""
        return [self._answers.translations[text] for text in texts]


class ReplayVoice:
    """Returns recorded speech."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._answers = _load(environment)

    def speak(self, text: str, *, language: str, speaker: str, seconds: float | None) -> Speech:  # noqa: ARG002
        """Look up the sound."""
        return self._answers.speeches[text]


def replay_variables(file: Path) -> dict[str, str]:
    """Environment variables of a process that replays a file."""
    here = "benchmarks.dubbing_replay"
    return {
        VARIABLE: str(file),
        "DUBBING_RECOGNISER": f"{here}:ReplayRecogniser",
        "DUBBING_TRANSLATOR": f"{here}:ReplayTranslator",
        "DUBBING_VOICE": f"{here}:ReplayVoice",
    }


def _load(environment: Mapping[str, str]) -> Answers:
    return msgspec.json.decode(Path(environment[VARIABLE]).read_bytes(), type=Answers)
