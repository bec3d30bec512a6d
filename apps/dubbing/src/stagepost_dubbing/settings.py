"""Settings of the application: database, objects, engines, sizes and timeouts, read from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from stagepost.errors import ConfigurationError

__all__ = ["STEPS", "DubbingSettings"]

STEPS = ("extract_audio", "asr", "translate", "tts", "mux_video")
"""The steps in their order; tasks and queues have the same names."""

TIMEOUTS = {step: f"timeout_{'mux' if step == 'mux_video' else step}_seconds" for step in STEPS}

VARIABLES = {
    "database_url": ("DUBBING_DATABASE_URL", "STAGEPOST_DATABASE_URL"),
    "objects_url": ("DUBBING_OBJECTS_URL",),
    "home": ("DUBBING_HOME",),
    "work_directory": ("DUBBING_WORK_DIRECTORY",),
    "recogniser": ("DUBBING_RECOGNISER",),
    "translator": ("DUBBING_TRANSLATOR",),
    "voice": ("DUBBING_VOICE",),
    "translate_message_size": ("DUBBING_TRANSLATE_MESSAGE_SIZE",),
    "requeue_rule": ("DUBBING_REQUEUE_RULE",),
    "most_requeues": ("DUBBING_MOST_REQUEUES",),
}
"""The environment variable of each field, unless it is the field's name in capitals."""


class DubbingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the dubbing application. Durations are in seconds."""

    home: str = ""
    """Directory for the database and objects, unless they are set; default `~/.local/share/stagepost-dubbing`."""
    database_url: str = ""
    """`sqlite:///…`, `postgresql://…` or `mysql://…`; the default is a SQLite file in `home`."""
    objects_url: str = ""
    """`file:///…`, `memory://` or `s3://bucket/prefix?endpoint=…`; the default is a directory in `home`."""
    work_directory: str = ""
    """Directory for temporary files; the default is the system's."""
    recogniser: str = "moonshine"
    translator: str = "offline"
    voice: str = "espeak"
    translate_batch_size: int = 20
    """Segments per call of the translator, which is also the most that a crash can lose."""
    translate_message_size: int = 200
    """Segments per translate message; several messages run in parallel."""
    tts_batch_size: int = 20
    """Segments to read from the database at once."""
    tts_max_concurrency: int = 4
    """Segments of a task to speak at once."""
    tts_max_retries: int = 3
    """Retries of one segment before it is handed to compensation."""
    tts_retry_delay_seconds: float = 2.0
    timeout_extract_audio_seconds: float = 300.0
    timeout_asr_seconds: float = 600.0
    timeout_translate_seconds: float = 600.0
    timeout_tts_seconds: float = 1200.0
    timeout_mux_seconds: float = 600.0
    requeue_rule: str = "every 15m"
    """When to retry segments without speech automatically; empty for never."""
    most_requeues: int = 10
    """Maximum number of automatic retries per task."""

    def __post_init__(self) -> None:
        home = Path(self.home or _default_home()).expanduser().absolute()
        filled = {
            "home": str(home),
            "database_url": self.database_url or f"sqlite:///{home / 'dubbing.db'}",
            "objects_url": self.objects_url or (home / "objects").as_uri(),
        }
        for name, value in filled.items():
            msgspec.structs.force_setattr(self, name, value)
        at_least_one = ("translate_batch_size", "translate_message_size", "tts_batch_size", "tts_max_concurrency")
        for name in at_least_one:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{_variable(name)} is {getattr(self, name)}: it must be 1 or more.")
        for name in ("tts_max_retries", "tts_retry_delay_seconds", "most_requeues"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{_variable(name)} is {getattr(self, name)}: it cannot be negative.")
        for name in TIMEOUTS.values():
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{_variable(name)} is {getattr(self, name)}: it must be more than 0 seconds.")

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Read the environment; arguments that are not None override it."""
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for name in cls.__struct_fields__:
            for variable in VARIABLES.get(name, (name.upper(),)):
                value = _value(environment, variable)
                if value:
                    values[name] = value
                    break
        values |= {name: value for name, value in given.items() if value is not None}
        try:
            return msgspec.convert(values, type=cls, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigurationError(_explained(error, values)) from error

    def timeout(self, step: str) -> float:
        """Return how long one attempt of a step may take."""
        seconds: float = getattr(self, TIMEOUTS[step])
        return seconds

    @staticmethod
    def timeout_variable(step: str) -> str:
        """Return the environment variable of a step's timeout."""
        return TIMEOUTS[step].upper()


def _default_home() -> str:
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return f"{data}/stagepost-dubbing"


def _value(environment: Mapping[str, str], variable: str) -> str | None:
    """Read a variable, or the file that `<variable>_FILE` names, which keeps a secret out of the environment."""
    file = environment.get(f"{variable}_FILE")
    if variable in environment or file is None:
        return environment.get(variable)
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{variable}_FILE: {error}. Name a file that this user can read.") from error


def _variable(name: str) -> str:
    return VARIABLES.get(name, (name.upper(),))[0]


def _explained(error: msgspec.ValidationError, values: Mapping[str, Any]) -> str:
    text = str(error)
    for name in values:
        if f"$.{name}`" in text:
            return f"{_variable(name)}: {text.partition(' - at')[0]}."
    return f"settings: {text}."
