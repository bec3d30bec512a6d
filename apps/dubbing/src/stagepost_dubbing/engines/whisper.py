"""faster-whisper: recognises some hundred languages on this machine; its weights are downloaded once.

Licence: MIT, engine and weights; see docs/dubbing/engines.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from stagepost import Permanent
from stagepost.errors import ConfigurationError
from stagepost_dubbing.engines import environment as read
from stagepost_dubbing.engines.interfaces import Utterance
from stagepost_dubbing.engines.languages import base_language
from stagepost_dubbing.engines.packages import import_engine, require_package
from stagepost_dubbing.engines.recordings import read_recording

__all__ = ["Whisper", "WhisperSettings"]

RATE = 16_000


@dataclass(frozen=True)
class WhisperSettings:
    """The weights and the device to run them on."""

    model: str = "small"
    """A model size of faster-whisper, or a directory with converted weights."""
    device: str = "auto"
    compute_type: str = "default"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read WHISPER_MODEL, WHISPER_DEVICE and WHISPER_COMPUTE_TYPE."""
        device = read.text(environment, "WHISPER_DEVICE", "auto")
        if device not in {"auto", "cpu", "cuda"}:
            raise ConfigurationError(f"WHISPER_DEVICE={device!r}: choose auto, cpu or cuda")
        return cls(
            model=read.text(environment, "WHISPER_MODEL", "small"),
            device=device,
            compute_type=read.text(environment, "WHISPER_COMPUTE_TYPE", "default"),
        )


class Whisper:
    """Recognises with faster-whisper, one recording at a time, because it uses all cores itself."""

    def __init__(self, settings: WhisperSettings | None = None) -> None:
        require_package("faster_whisper", extra="whisper")
        self.settings = settings or WhisperSettings()
        self._model: Any = None
        self._one_at_a_time = threading.Lock()

    def recognise(self, audio: Path, *, language: str, while_running: Callable[[float], None]) -> Sequence[Utterance]:
        """Transcribe a recording; raises Permanent if it contains no speech."""
        samples = read_recording(audio)
        utterances = []
        with self._one_at_a_time:
            model = self._loaded()
            code = base_language(language)
            if code not in model.supported_languages:
                raise Permanent(f"Whisper's weights {self.settings.model!r} do not support the language {language!r}")
            # Temperature 0 and no context from earlier text, so that the same sound gives the same segments.
            segments, _ = model.transcribe(
                samples.astype(np.float32) / 32768,
                language=code,
                temperature=0.0,
                condition_on_previous_text=False,
                vad_filter=True,
                word_timestamps=True,  # without them, a segment lasts until the next one begins
            )
            for segment in segments:
                if text := " ".join(segment.text.split()):
                    utterances.append(Utterance(float(segment.start), float(segment.end), text))
                while_running(min(1.0, segment.end * RATE / len(samples)))
        if not utterances:
            raise Permanent(f"no speech was found in {len(samples) / RATE:.1f} s of sound; is it the right recording?")
        return utterances

    def _loaded(self) -> Any:
        if self._model is None:
            make = import_engine("faster_whisper", extra="whisper").WhisperModel
            settings = self.settings
            try:
                self._model = make(settings.model, device=settings.device, compute_type=settings.compute_type)
            except (OSError, RuntimeError, ValueError) as error:
                raise ConfigurationError(
                    f"Whisper's weights {settings.model!r} cannot be loaded: {error}. Set WHISPER_MODEL to a directory "
                    f"with converted weights, or to a size such as `small`, which is downloaded if that is allowed"
                ) from error
        return self._model
