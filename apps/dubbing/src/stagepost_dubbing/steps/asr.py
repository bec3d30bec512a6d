"""The step asr: recognises what is said in the video, and when."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from stagepost import JobContext, Permanent
from stagepost_dubbing.engines.interfaces import Utterance
from stagepost_dubbing.keys import checked_own, task_of
from stagepost_dubbing.objects import ObjectDiffers
from stagepost_dubbing.services import Services
from stagepost_dubbing.steps.frame import Attempt, Finished, Step
from stagepost_dubbing.tables import segments
from stagepost_dubbing.tables.connection import Connection
from stagepost_dubbing.tables.segments import Segment

__all__ = ["Asr", "Heard", "Transcript"]


class Transcript(msgspec.Struct, frozen=True):
    """The content of asr.json."""

    language: str
    segments: list[Utterance]


class Heard(msgspec.Struct, frozen=True):
    """The step's result: the transcript's key, and the segments' ids, grouped into messages."""

    output_key: str
    chunks: list[list[str]]


class Asr:
    """Transcribes the video's sound."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._step = Step[Heard](services, "asr")

    def handle(self, job: JobContext, audio_key: str, language: str, output_key: str) -> Heard:
        """Recognise once; an attempt after a crash uses the stored transcript, because boundaries could differ."""
        task_id = task_of(audio_key)
        checked_own(audio_key, "audios", task_id)
        checked_own(output_key, "asr", task_id)

        def work(attempt: Attempt) -> Finished[Heard]:
            transcript = self._transcript(attempt, audio_key, language, output_key)
            rows = as_segments(transcript.segments)
            if not rows:
                raise Permanent("no speech was found in the video, so there is nothing to dub.")
            heard = self._heard(output_key, [row.segment_id for row in rows])
            return Finished(heard, lambda tx: segments.replace_all(tx, task_id, rows))

        def skipped(tx: Connection) -> Heard:
            return self._heard(output_key, [segment.segment_id for segment in segments.list_all(tx, task_id)])

        return self._step.run(job, task_id, work, skipped=skipped)

    def _transcript(self, attempt: Attempt, audio_key: str, language: str, output_key: str) -> Transcript:
        objects = self._services.objects
        if not objects.has(output_key):
            audio = objects.lend(audio_key, attempt.directory / "source.wav")
            said = self._services.recogniser.recognise(audio, language=language, while_running=attempt.report)
            attempt.check()
            made = Transcript(language, [utterance for utterance in said if utterance.text.strip()])
            with contextlib.suppress(ObjectDiffers):  # another attempt was faster: all attempts use its transcript
                objects.create(output_key, msgspec.json.format(msgspec.json.encode(made)))
        return msgspec.json.decode(objects.read(output_key), type=Transcript)

    def _heard(self, output_key: str, ids: Sequence[str]) -> Heard:
        size = self._services.settings.translate_message_size
        return Heard(output_key, [list(ids[start : start + size]) for start in range(0, len(ids), size)])


def as_segments(said: Sequence[Utterance]) -> list[Segment]:
    """Convert utterances to numbered segments."""
    return [
        Segment(
            idx,
            segments.segment_id_of(idx),
            round(utterance.start * 1000),
            round(utterance.end * 1000),
            utterance.text.strip(),
        )
        for idx, utterance in enumerate(said)
    ]
