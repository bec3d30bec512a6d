"""The step extract_audio: extracts the video's sound in the recogniser's format."""

from __future__ import annotations

import math
from pathlib import Path

from stagepost import JobContext
from stagepost_dubbing.keys import checked_own, task_of
from stagepost_dubbing.media.extracting import extract_audio
from stagepost_dubbing.services import Services
from stagepost_dubbing.sound import wav_level
from stagepost_dubbing.steps.frame import Attempt, Finished, Step
from stagepost_dubbing.tables import tasks

__all__ = ["ExtractAudio"]


class ExtractAudio:
    """Extracts the sound of a video."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._step = Step[str](services, "extract_audio")

    def handle(self, job: JobContext, source_video_key: str, output_audio_key: str) -> str:
        """Extract and store the sound; returns its key."""
        task_id = task_of(source_video_key)
        checked_own(source_video_key, "videos", task_id)
        checked_own(output_audio_key, "audios", task_id)

        def work(attempt: Attempt) -> Finished[str]:
            video = self._services.objects.lend(source_video_key, attempt.directory / "source.mp4")
            audio = attempt.directory / "source.wav"
            facts = extract_audio(
                self._services.ffmpeg, video, audio, seconds=attempt.seconds_left, while_running=attempt.check
            )
            attempt.store(output_audio_key, audio)
            duration_ms, speech_db = round(facts.duration * 1000), _speech_db(audio)
            return Finished(
                output_audio_key,
                lambda tx: tasks.note_sound(tx, task_id, duration_ms=duration_ms, speech_db=speech_db),
            )

        return self._step.run(job, task_id, work, skipped=lambda _tx: output_audio_key)


def _speech_db(audio: Path) -> float | None:
    found = wav_level(audio)
    return round(found, 1) if math.isfinite(found) else None
