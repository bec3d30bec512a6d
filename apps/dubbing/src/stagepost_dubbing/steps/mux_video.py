"""The step mux_video: mixes the segments into one track, puts it into the video, and completes the task."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from stagepost import JobContext, Permanent
from stagepost_dubbing.engines.interfaces import Utterance
from stagepost_dubbing.keys import checked_id, checked_own, subtitles_key
from stagepost_dubbing.media.extracting import extract_audio
from stagepost_dubbing.media.mixing import mix, voice_level
from stagepost_dubbing.media.muxing import mux
from stagepost_dubbing.media.subtitles import to_srt, to_vtt
from stagepost_dubbing.media.timeline import Placed, Slot, place
from stagepost_dubbing.services import Services
from stagepost_dubbing.sound import parse_wav
from stagepost_dubbing.steps.frame import Attempt, Finished, Step
from stagepost_dubbing.tables import segments, tasks
from stagepost_dubbing.tables.segments import Segment

__all__ = ["MuxVideo"]


class Track(msgspec.Struct, frozen=True):
    """Stored beside dub.wav: fingerprints of its inputs and of its content."""

    made_of: str
    sha256: str


class MuxVideo:
    """Builds the dubbed video."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._step = Step[str](services, "mux_video")

    def handle(
        self, job: JobContext, task_id: str, source_video_key: str, tts_audio_key: str, output_video_key: str
    ) -> str:
        """Build the track, the subtitles and the video; returns the video's key."""
        task_id = checked_id(task_id)
        for folder, key in (("videos", source_video_key), ("tts", tts_audio_key), ("outputs", output_video_key)):
            checked_own(key, folder, task_id)

        def work(attempt: Attempt) -> Finished[str]:
            with self._services.database.reading() as tx:
                found = segments.list_all(tx, task_id)
            video = self._services.objects.lend(source_video_key, attempt.directory / "source.mp4")
            track = self._track(attempt, video, found, tts_audio_key)
            self._store_subtitles(attempt, found)
            output = attempt.directory / "final.mp4"
            task = attempt.task
            mux(
                self._services.ffmpeg,
                video,
                track,
                output,
                language=task.target_language,
                seconds=attempt.seconds_left,
                while_running=attempt.check,
                original=task.source_language if task.options.keep_original else None,
            )
            attempt.store(output_video_key, output)
            return Finished(output_video_key, lambda tx: tasks.set_status(tx, task_id, "done"))

        return self._step.run(job, task_id, work, skipped=lambda _tx: output_video_key)

    def _track(self, attempt: Attempt, video: Path, found: list[Segment], key: str) -> Path:
        """Reuse the stored track if it is made of the same segments; otherwise build it."""
        objects = self._services.objects
        made_of = _fingerprint(attempt, found)
        track = attempt.directory / "dub.wav"
        facts_key = key.removesuffix(".wav") + ".json"
        if objects.has(facts_key) and objects.has(key):
            facts = msgspec.json.decode(objects.read(facts_key), type=Track)
            if facts.made_of == made_of and _sha256(objects.fetch(key, track)) == facts.sha256:
                return track
        self._mix(attempt, video, found, track)
        attempt.store(key, track)
        attempt.store(facts_key, msgspec.json.encode(Track(made_of, _sha256(track))))
        return track

    def _mix(self, attempt: Attempt, video: Path, found: list[Segment], track: Path) -> None:
        duration = (attempt.task.duration_ms or 0) / 1000
        placed = placement(found, duration)
        duck_db = attempt.task.options.duck_db
        under = None
        if duck_db is not None:
            under = attempt.directory / "original.wav"
            extract_audio(
                self._services.ffmpeg,
                video,
                under,
                seconds=attempt.seconds_left,
                while_running=attempt.check,
                rate=48_000,
            )
        mix(
            track,
            placed,
            lambda idx: parse_wav(self._services.objects.read(_spoken_key(found[idx]))),
            duration=duration,
            level_db=voice_level(attempt.task.speech_db),
            under=under,
            duck_db=0.0 if duck_db is None else duck_db,
            while_running=attempt.check,
        )

    def _store_subtitles(self, attempt: Attempt, found: list[Segment]) -> None:
        task = attempt.task
        for which, language, texts in (
            ("source", task.source_language, [segment.src_text for segment in found]),
            ("target", task.target_language, [segment.mt_text or "" for segment in found]),
        ):
            captions = [
                Utterance(segment.start_ms / 1000, segment.end_ms / 1000, text)
                for segment, text in zip(found, texts, strict=True)
                if text
            ]
            attempt.store(subtitles_key(task.id, which, "srt"), to_srt(captions).encode())
            attempt.store(subtitles_key(task.id, which, "vtt"), to_vtt(captions, language=language).encode())


def placement(found: list[Segment], duration: float) -> list[Placed]:
    """Compute the position of each segment's speech on the track."""
    slots = [Slot(segment.start_ms / 1000, segment.end_ms / 1000) for segment in found]
    lengths = [float(msgspec.json.decode(segment.tts_params_json or "{}").get("seconds", 0.0)) for segment in found]
    return place(slots, lengths, duration=duration)


def _spoken_key(segment: Segment) -> str:
    if segment.tts_audio_key is None:
        raise Permanent(f"segment {segment.idx} has no speech, although its step succeeded. Retry the task.")
    return segment.tts_audio_key


def _fingerprint(attempt: Attempt, found: list[Segment]) -> str:
    facts = [[segment.start_ms, segment.end_ms, segment.tts_audio_key] for segment in found]
    task = attempt.task
    others = [task.duration_ms, voice_level(task.speech_db), task.options.duck_db]
    return hashlib.sha256(msgspec.json.encode([facts, others])).hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
