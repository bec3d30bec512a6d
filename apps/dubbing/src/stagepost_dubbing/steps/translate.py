"""The step translate: translates the segments of one message batch by batch, and stores each batch at once."""

from __future__ import annotations

from collections.abc import Sequence

from stagepost import JobContext, Permanent, StagepostError
from stagepost_dubbing.keys import checked_id
from stagepost_dubbing.services import Services
from stagepost_dubbing.steps.frame import Attempt, Finished, Step
from stagepost_dubbing.tables import segments
from stagepost_dubbing.tables.segments import Segment

__all__ = ["Translate"]


class Translate:
    """Translates segments that have no translation yet."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._step = Step[int](services, "translate")

    def handle(
        self,
        job: JobContext,
        task_id: str,
        segment_ids: list[str],
        source_language: str,
        target_language: str,
        batch_size: int,
    ) -> int:
        """Translate the segments; returns how many there are."""
        task_id = checked_id(task_id)
        if not segment_ids:
            raise Permanent(f"task {task_id}: a translate message has no segment_ids.")
        self._check_known(task_id, segment_ids)

        def work(attempt: Attempt) -> Finished[int]:
            while left := self._untranslated(task_id, segment_ids):
                attempt.report(1 - len(left) / len(segment_ids))
                self._translate(attempt, left[: max(1, batch_size)], source_language, target_language)
            return Finished(len(segment_ids))

        return self._step.run(job, task_id, work, skipped=lambda _tx: len(segment_ids), part=segment_ids[0])

    def _check_known(self, task_id: str, segment_ids: Sequence[str]) -> None:
        """Refuse a message about segments that the task does not have, before it changes the task."""
        with self._services.database.reading() as tx:
            total = segments.count(tx, task_id).total
        unknown = [name for name in segment_ids if segments.index_of(name) >= total]
        if total and unknown:
            raise Permanent(f"task {task_id} has no segment {unknown[0]}: there are {total}, numbered from seg-0.")

    def _untranslated(self, task_id: str, segment_ids: Sequence[str]) -> list[Segment]:
        with self._services.database.reading() as tx:
            return segments.untranslated(tx, task_id, among=segment_ids)

    def _translate(self, attempt: Attempt, batch: Sequence[Segment], source: str, target: str) -> None:
        """Translate one batch and store the successful part; then raise the first failure."""
        texts = [segment.src_text for segment in batch]
        translated = self._services.translator.translate_each(texts, source=source, target=target)
        attempt.job.raise_if_cancelled()
        with self._services.database.transaction() as tx:
            for segment, text in zip(batch, translated, strict=True):
                if isinstance(text, str):
                    segments.save_text(tx, attempt.task.id, segment.idx, text)
        failures = [text for text in translated if isinstance(text, StagepostError)]
        # A permanent error ends the step, even if other errors could be retried.
        failures.sort(key=lambda failure: not isinstance(failure, Permanent))
        if failures:
            raise failures[0]
