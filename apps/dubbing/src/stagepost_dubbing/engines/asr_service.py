"""A recogniser behind HTTP: `POST /transcribe` with a WAV file, answered with JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from stagepost import Permanent
from stagepost_dubbing.engines import environment as read
from stagepost_dubbing.engines.http import Reply, Service
from stagepost_dubbing.engines.interfaces import Utterance
from stagepost_dubbing.engines.languages import tidy_language

__all__ = ["AsrService", "AsrServiceSettings", "Segment", "Transcript"]

LONGEST_TRANSCRIPT = 16 * 1024 * 1024


@dataclass(frozen=True)
class AsrServiceSettings:
    """Address, token and timeout of the service."""

    url: str
    token: str = field(default="", repr=False)
    timeout: float = 1800.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read ASR_SERVICE_URL, ASR_SERVICE_TOKEN (or ASR_SERVICE_TOKEN_FILE) and ASR_SERVICE_TIMEOUT_SECONDS."""
        return cls(
            url=read.service_url(environment, "ASR_SERVICE_URL"),
            token=read.secret(environment, "ASR_SERVICE_TOKEN"),
            timeout=read.number(environment, "ASR_SERVICE_TIMEOUT_SECONDS", 1800, least=0.1, most=86_400),
        )


class Segment(msgspec.Struct, frozen=True):
    """One spoken segment, with the service's field names."""

    start_ms: float
    end_ms: float
    text: str


class Transcript(msgspec.Struct, frozen=True):
    """The fields of the service's answer that are used here."""

    segments: list[Segment]


class AsrService:
    """Recognises speech through a service."""

    def __init__(self, settings: AsrServiceSettings) -> None:
        self.service = Service(
            "the recognition service",
            settings.url,
            settings.timeout,
            longest_reply=LONGEST_TRANSCRIPT,
            token=settings.token,
        )

    def recognise(self, audio: Path, *, language: str, while_running: Callable[[float], None]) -> Sequence[Utterance]:
        """Send the recording and wait for the result; the service reports no progress."""
        path = f"/transcribe?language={tidy_language(language)}"
        try:
            file = audio.open("rb")
        except FileNotFoundError:
            raise Permanent(f"{audio.name}: there is no such recording") from None
        with file:
            reply = self.service.post(
                path,
                file,
                content_type="audio/wav",
                length=audio.stat().st_size,
                while_waiting=lambda: while_running(0.0),
            )
        utterances = self._utterances(reply)
        if not utterances:
            raise Permanent("the recognition service found no speech; is it the right recording?")
        while_running(1.0)
        return utterances

    def _utterances(self, reply: Reply) -> Sequence[Utterance]:
        try:
            segments = msgspec.json.decode(reply.body, type=Transcript).segments
        except msgspec.MsgspecError as error:
            raise self.service.bad_reply(f"expected a transcript in JSON: {error}") from None
        utterances = []
        for segment in sorted(segments, key=lambda segment: segment.start_ms):
            if not 0 <= segment.start_ms <= segment.end_ms:
                raise self.service.bad_reply(f"a segment is from {segment.start_ms} to {segment.end_ms} ms")
            if text := " ".join(segment.text.split()):
                utterances.append(Utterance(segment.start_ms / 1000, segment.end_ms / 1000, text))
        return utterances
