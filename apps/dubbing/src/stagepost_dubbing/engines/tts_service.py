"""A voice behind HTTP: `POST /synthesize` with JSON, answered with a WAV file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urljoin, urlsplit

import msgspec

from stagepost_dubbing.engines import environment as read
from stagepost_dubbing.engines.http import Reply, Service
from stagepost_dubbing.engines.interfaces import Speech
from stagepost_dubbing.engines.languages import tidy_language
from stagepost_dubbing.engines.recordings import read_speech

__all__ = ["SpeechQuestion", "TtsService", "TtsServiceSettings"]

LONGEST_SPEECH = 64 * 1024 * 1024
SOUND = frozenset({"audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave", "application/octet-stream"})


@dataclass(frozen=True)
class TtsServiceSettings:
    """Address, token and timeout of the service."""

    url: str
    token: str = field(default="", repr=False)
    timeout: float = 60.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read TTS_SERVICE_URL, TTS_SERVICE_TOKEN (or TTS_SERVICE_TOKEN_FILE) and TTS_SERVICE_TIMEOUT_SECONDS."""
        return cls(
            url=read.service_url(environment, "TTS_SERVICE_URL"),
            token=read.secret(environment, "TTS_SERVICE_TOKEN"),
            timeout=read.number(environment, "TTS_SERVICE_TIMEOUT_SECONDS", 60, least=0.1, most=3600),
        )


class SpeechQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a request, with the service's field names."""

    text: str
    language: str
    speaker_id: str
    output_format: str = ""
    target_duration_ms: int | None = None


class _Kept(msgspec.Struct):
    """The answer of a service that stores the sound instead of sending it."""

    audio_url: str


class TtsService:
    """Speaks through a service."""

    def __init__(self, settings: TtsServiceSettings) -> None:
        self.service = Service(
            "the speech service", settings.url, settings.timeout, longest_reply=LONGEST_SPEECH, token=settings.token
        )

    def speak(self, text: str, *, language: str, speaker: str, seconds: float | None) -> Speech:
        """Request a speech of `seconds`; the service decides how fast it may be."""
        tidy_language(language)
        question = SpeechQuestion(
            text=text,
            language=language,
            speaker_id=speaker or "default",
            output_format="wav",
            target_duration_ms=None if seconds is None else max(1, round(seconds * 1000)),
        )
        sound = self._sound_of(self.service.post_json("/synthesize", question))
        try:
            return read_speech(sound, {"engine": "tts-service", "speaker_id": question.speaker_id})
        except ValueError as error:
            raise self.service.bad_reply(f"expected 16-bit mono WAV, but {error}") from None

    def _sound_of(self, reply: Reply) -> bytes:
        if reply.content_type in SOUND:
            return reply.body
        if reply.content_type != "application/json":
            raise self.service.bad_reply(f"expected audio/wav, but it is {reply.content_type}")
        try:
            address = urljoin(f"{self.service.url}/", msgspec.json.decode(reply.body, type=_Kept).audio_url)
        except msgspec.MsgspecError as error:
            raise self.service.bad_reply(f"it is JSON without an `audio_url`: {error}") from None
        if not address.startswith(f"{self.service.url}/"):
            host = urlsplit(address).netloc
            raise self.service.bad_reply(f"it points to {host!r}; sound is only fetched below {self.service.url}")
        return self.service.get(address.removeprefix(self.service.url)).body
