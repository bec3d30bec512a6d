"""The step tts: speaks every segment without speech, several at once, and stores each one immediately."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Event

import msgspec

from stagepost import JobContext, Permanent, Retryable, StagepostError
from stagepost_dubbing.engines.interfaces import Speech
from stagepost_dubbing.keys import checked_id, speech_key
from stagepost_dubbing.objects import ObjectDiffers
from stagepost_dubbing.services import Services
from stagepost_dubbing.sound import Sound, wav_bytes
from stagepost_dubbing.steps.frame import Attempt, Finished, Step
from stagepost_dubbing.tables import segments
from stagepost_dubbing.tables.connection import Connection, shortened
from stagepost_dubbing.tables.segments import Segment
from stagepost_dubbing.tables.tasks import Task

__all__ = ["SpeechFailed", "Tts"]

LOOK_SECONDS = 0.5
"""Interval between checks whether the attempt should stop, while segments are being spoken."""

LONGEST_PAUSE_SECONDS = 60.0
"""Longest pause between two tries of a segment, whatever a service or a message asks for."""

MOST_AT_ONCE = 64
"""Maximum number of segments of one task spoken at once, whatever its message asks for."""

Compensate = Callable[[Connection, str, int, str], None]
"""Requests compensation for a segment, in a transaction; takes the task, the index and the error."""


class SpeechFailed(StagepostError):
    """Some segments could not be spoken; the speech of the others is stored."""

    def __init__(self, errors: dict[int, Exception]) -> None:
        first = min(errors)
        reason = str(errors[first]).rstrip(".")
        super().__init__(
            f"{len(errors)} segments could not be spoken; the first is segment {first}: {reason}. "
            f"When the cause is fixed, run `stagepost-dubbing tts-requeue` or `retry`."
        )
        self.errors = errors
        self.retryable = not all(isinstance(error, Permanent) for error in errors.values())


class Tts:
    """Speaks segments that have no speech yet."""

    def __init__(self, services: Services, *, compensate: Compensate) -> None:
        self._services = services
        self._compensate = compensate
        self._step = Step[int](services, "tts", on_final_failure=self._on_final_failure)

    def handle(
        self,
        job: JobContext,
        task_id: str,
        batch_size: int,
        max_concurrency: int,
        max_retries: int,
        retry_delay_sec: float,
        speaker_id: str,
    ) -> int:
        """Speak the segments; returns how many segments the task has."""
        task_id = checked_id(task_id)

        def work(attempt: Attempt) -> Finished[int]:
            errors: dict[int, Exception] = {}
            after = -1
            speaking = Speaking(self._services, attempt, speaker_id, max_retries, retry_delay_sec)
            with ThreadPoolExecutor(min(max(1, max_concurrency), MOST_AT_ONCE), thread_name_prefix="tts") as pool:
                try:
                    while batch := self._next_batch(task_id, after, batch_size):
                        after = batch[-1].idx
                        self._speak_all(pool, speaking, batch, errors)
                except BaseException:
                    speaking.stop()
                    pool.shutdown(cancel_futures=True)
                    raise
            if errors:
                raise SpeechFailed(errors)
            return Finished(self._count(task_id))

        return self._step.run(job, task_id, work, skipped=lambda tx: segments.count(tx, task_id).total)

    def _speak_all(
        self, pool: ThreadPoolExecutor, speaking: Speaking, batch: list[Segment], errors: dict[int, Exception]
    ) -> None:
        """Speak a batch; records segments that failed and continues with the others."""
        futures = {pool.submit(speaking.speak, segment): segment for segment in batch}
        pending: set[Future[None]] = set(futures)
        while pending:
            done, pending = wait(pending, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                error = future.exception()
                if isinstance(error, Exception):
                    errors[futures[future].idx] = error
                elif error is not None:
                    raise error
            speaking.attempt.check()  # last, because a segment that was asked to stop is not a failure

    def _next_batch(self, task_id: str, after: int, most: int) -> list[Segment]:
        with self._services.database.reading() as tx:
            return segments.unspoken(tx, task_id, after=after, most=max(1, most))

    def _count(self, task_id: str) -> int:
        with self._services.database.reading() as tx:
            return segments.count(tx, task_id).total

    def _on_final_failure(self, tx: Connection, task: Task, error: BaseException) -> None:
        """Request compensation for unspoken segments, in the transaction that fails the step."""
        if isinstance(error, SpeechFailed):
            for idx, reason in sorted(error.errors.items()):
                segments.save_trouble(tx, task.id, idx, str(reason))
                self._compensate(tx, task.id, idx, shortened(str(reason)) or "")


class Speaking:
    """Speaks the segments of one attempt."""

    def __init__(
        self, services: Services, attempt: Attempt, speaker: str, max_retries: int, retry_delay: float
    ) -> None:
        self.attempt = attempt
        self._services, self._speaker = services, speaker
        self._max_retries, self._retry_delay = max_retries, retry_delay
        self._stopped = Event()

    def stop(self) -> None:
        """End segments that are waiting for another try."""
        self._stopped.set()

    def speak(self, segment: Segment) -> None:
        """Speak a segment, store its sound under a key derived from all its inputs, and then store the key.

        The thread that speaks also stores, so that a crash loses no more segments than there are threads.
        """
        language = self.attempt.task.target_language
        voice = self._services.settings.voice
        made_of = msgspec.json.encode([segment.mt_text, language, self._speaker, segment.seconds, voice]).decode()
        key = speech_key(self.attempt.task.id, segment.idx, made_of)
        speech: Speech | None = None
        tries = 0
        while True:
            try:
                self.attempt.check()
                if speech is None:  # do not speak again only because storing failed
                    speech = self._spoken(segment, language)
                self._store(key, speech)
            except Permanent:
                raise
            except Exception as error:
                tries += 1
                self.attempt.check()
                if tries > self._max_retries or self._stopped.wait(self._pause_after(error)):
                    raise
            else:
                self._note(segment, key, speech)
                return

    def _pause_after(self, error: Exception) -> float:
        """Return the pause before the next try: the setting's, or longer if the service asks for it."""
        asked = error.after if isinstance(error, Retryable) else None
        seconds = 0.0 if asked is None else asked.total_seconds()
        return min(max(self._retry_delay, seconds), LONGEST_PAUSE_SECONDS)

    def _spoken(self, segment: Segment, language: str) -> Speech:
        text = (segment.mt_text or "").strip()
        if not text:
            return Speech(b"", 16_000, {"engine": "none"})
        return self._services.voice.speak(text, language=language, speaker=self._speaker, seconds=segment.seconds)

    def _store(self, key: str, speech: Speech) -> None:
        sound = wav_bytes(Sound.from_pcm(speech.samples, speech.rate))
        try:
            self._services.objects.create(key, sound)
        except ObjectDiffers:
            # A crashed attempt has stored it; a voice may speak a text differently each time, and both are valid.
            self._services.objects.replace(key, sound)

    def _note(self, segment: Segment, key: str, speech: Speech) -> None:
        """Store the key of a speech and the parameters it was made with."""
        facts = {**speech.parameters, "speaker": self._speaker, "seconds": round(speech.seconds, 3)}
        parameters = msgspec.json.encode(facts).decode()
        with self._services.database.transaction() as tx:
            segments.save_speech(tx, self.attempt.task.id, segment, key=key, parameters=parameters)
