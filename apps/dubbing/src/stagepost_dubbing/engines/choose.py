"""Creates the engines that the settings name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stagepost.errors import ConfigurationError
from stagepost_dubbing.engines.asr_service import AsrService, AsrServiceSettings
from stagepost_dubbing.engines.careful import CarefulSettings, CarefulTranslator
from stagepost_dubbing.engines.espeak import EspeakSettings, EspeakVoice
from stagepost_dubbing.engines.glm import Glm, GlmSettings
from stagepost_dubbing.engines.interfaces import Recogniser, Translator, Voice
from stagepost_dubbing.engines.moonshine import Moonshine, MoonshineSettings
from stagepost_dubbing.engines.offline_translation import OfflineTranslator
from stagepost_dubbing.engines.tts_service import TtsService, TtsServiceSettings
from stagepost_dubbing.engines.whisper import Whisper, WhisperSettings

__all__ = ["RECOGNISERS", "TRANSLATORS", "VOICES", "choose_recogniser", "choose_translator", "choose_voice"]

Engine = TypeVar("Engine")
Environment = Mapping[str, str]

RECOGNISERS: Mapping[str, Callable[[Environment], Recogniser]] = {
    "moonshine": lambda environment: Moonshine(MoonshineSettings.from_environment(environment)),
    "asr-service": lambda environment: AsrService(AsrServiceSettings.from_environment(environment)),
    "whisper": lambda environment: Whisper(WhisperSettings.from_environment(environment)),
}
TRANSLATORS: Mapping[str, Callable[[Environment], Translator]] = {
    "offline": lambda _: OfflineTranslator(),
    "glm": lambda environment: Glm(GlmSettings.from_environment(environment)),
}
VOICES: Mapping[str, Callable[[Environment], Voice]] = {
    "espeak": lambda environment: EspeakVoice(EspeakSettings.from_environment(environment)),
    "tts-service": lambda environment: TtsService(TtsServiceSettings.from_environment(environment)),
}


def choose_recogniser(name: str, environment: Environment) -> Recogniser:
    """Create the recogniser with this name, or the one at `module:Class`."""
    return _choose("recogniser", name, RECOGNISERS, environment, verb="recognise")


def choose_translator(name: str, environment: Environment) -> CarefulTranslator:
    """Create the translator with this name, or the one at `module:Class`, wrapped in checks and retries."""
    translator = _choose("translator", name, TRANSLATORS, environment, verb="translate")
    return CarefulTranslator(translator, CarefulSettings.from_environment(environment))


def choose_voice(name: str, environment: Environment) -> Voice:
    """Create the voice with this name, or the one at `module:Class`."""
    return _choose("voice", name, VOICES, environment, verb="speak")


def _choose(
    kind: str, name: str, known: Mapping[str, Callable[[Environment], Engine]], environment: Environment, *, verb: str
) -> Engine:
    if ":" in name:
        engine: Engine = _own(kind, name)(environment)
        if not callable(getattr(engine, verb, None)):
            raise ConfigurationError(f"{kind} {name!r} has no method `{verb}`; see docs/dubbing/engines.md")
        return engine
    if name not in known:
        raise ConfigurationError(
            f"there is no {kind} {name!r}; choose one of {', '.join(known)}, or your own as module:Class"
        )
    return known[name](environment)


def _own(kind: str, name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ConfigurationError(f"{kind} {name!r}: the module {module} cannot be imported: {error}") from error
    except AttributeError:
        raise ConfigurationError(f"{kind} {name!r}: the module {module} has no {attribute}") from None
