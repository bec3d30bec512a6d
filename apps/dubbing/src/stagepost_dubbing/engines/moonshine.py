"""Moonshine: recognises English on this machine; its weights are in the package.

Licence: MIT, engine and weights of English; see docs/dubbing/engines.md.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stagepost import Permanent
from stagepost.errors import ConfigurationError
from stagepost_dubbing.engines import environment as read
from stagepost_dubbing.engines.interfaces import Utterance
from stagepost_dubbing.engines.languages import base_language
from stagepost_dubbing.engines.packages import import_engine, require_package
from stagepost_dubbing.engines.recordings import read_recording
from stagepost_dubbing.engines.speech_parts import RATE, Part, find_parts

__all__ = ["Moonshine", "MoonshineSettings"]

ARCHITECTURES = ("tiny", "base")
AROUND = int(0.2 * RATE)
"""Context around each part; without it, the first and last consonants are often misheard."""


@dataclass(frozen=True)
class MoonshineSettings:
    """Location and kind of the weights."""

    model_path: str = ""
    """A directory with English weights; empty for those in the package."""
    architecture: str = "tiny"
    """The kind of weights: tiny or base."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read MOONSHINE_MODEL_PATH and MOONSHINE_MODEL_ARCHITECTURE."""
        architecture = read.text(environment, "MOONSHINE_MODEL_ARCHITECTURE", "tiny").lower()
        if architecture not in ARCHITECTURES:
            raise ConfigurationError(f"MOONSHINE_MODEL_ARCHITECTURE={architecture!r}: choose tiny or base")
        path = read.text(environment, "MOONSHINE_MODEL_PATH", "")
        if path and not Path(path).is_dir():
            raise ConfigurationError(f"MOONSHINE_MODEL_PATH={path!r} is not a directory")
        return cls(model_path=path, architecture=architecture)


class Moonshine:
    """Recognises English speech."""

    def __init__(self, settings: MoonshineSettings | None = None) -> None:
        require_package("moonshine_voice", extra="moonshine")
        require_package("webrtcvad", extra="moonshine")
        self.settings = settings or MoonshineSettings()
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue()
        self._loading = threading.Lock()

    def recognise(self, audio: Path, *, language: str, while_running: Callable[[float], None]) -> Sequence[Utterance]:
        """Find and transcribe the parts with speech; raises Permanent if there is none."""
        if base_language(language) != "en":
            raise Permanent(
                f"Moonshine's weights support only English, not {language!r}; "
                f"set DUBBING_RECOGNISER to whisper or to asr-service for other languages"
            )
        samples = read_recording(audio)
        utterances = []
        with self._transcriber() as transcriber:
            for part, sound in _with_surroundings(samples, find_parts(samples)):
                text = _text_of(transcriber.transcribe_without_streaming(sound, RATE))
                if text:
                    utterances.append(Utterance(start=part.start / RATE, end=part.end / RATE, text=text))
                while_running(part.end / len(samples))
        if not utterances:
            raise Permanent(f"no speech was found in {len(samples) / RATE:.1f} s of sound; is it the right recording?")
        return utterances

    @contextmanager
    def _transcriber(self) -> Iterator[Any]:
        """Provide the transcriber to one thread at a time, because its library is not thread-safe."""
        try:
            transcriber = self._idle.get_nowait()
        except queue.Empty:
            transcriber = self._load()
        try:
            yield transcriber
        finally:
            self._idle.put(transcriber)

    def _load(self) -> Any:
        module = import_engine("moonshine_voice.transcriber", extra="moonshine")
        kinds = import_engine("moonshine_voice.moonshine_api", extra="moonshine").ModelArch
        package = Path(module.__file__).parent
        path = Path(self.settings.model_path) if self.settings.model_path else package / "assets" / "tiny-en"
        if not path.is_dir():
            raise ConfigurationError(
                "this release of moonshine-voice brings no weights; install moonshine-voice==0.1.0, "
                "or download weights and name their directory in MOONSHINE_MODEL_PATH"
            )
        with self._loading:
            # The threshold turns off its own detector, because its input is already known to be speech.
            return module.Transcriber(path, kinds[self.settings.architecture.upper()], options={"vad_threshold": "0.0"})


def _with_surroundings(samples: NDArray[np.int16], parts: Sequence[Part]) -> Iterator[tuple[Part, list[float]]]:
    """Yield each part with a little context, but without overlapping its neighbours."""
    for at, part in enumerate(parts):
        before = parts[at - 1].end if at else 0
        after = parts[at + 1].start if at + 1 < len(parts) else len(samples)
        start, end = max(part.start - AROUND, before), min(part.end + AROUND, after)
        yield part, (samples[start:end].astype(np.float32) / 32768).tolist()


def _text_of(transcript: Any) -> str:
    return " ".join(" ".join(line.text for line in transcript.lines).split())
