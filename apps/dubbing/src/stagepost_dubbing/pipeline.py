"""The tasks and the pipeline `dub`: extract_audio → asr → translate → tts → mux_video."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from stagepost import App, AppTask, JobContext, Pipeline, RetryPolicy, RunHandle, RunState, traced
from stagepost_dubbing import keys
from stagepost_dubbing.services import Services
from stagepost_dubbing.settings import STEPS
from stagepost_dubbing.steps.asr import Asr
from stagepost_dubbing.steps.extract_audio import ExtractAudio
from stagepost_dubbing.steps.mux_video import MuxVideo
from stagepost_dubbing.steps.translate import Translate
from stagepost_dubbing.steps.tts import Tts
from stagepost_dubbing.tables import tasks
from stagepost_dubbing.tables.connection import Connection
from stagepost_dubbing.tables.tasks import Task

__all__ = ["CARRIED", "DubPipeline"]

log = logging.getLogger(__name__)

COMPENSATION = "tts_compensation"
CARRIED = [*STEPS, COMPENSATION]
"""The queues that a broker carries, such as task.extract_audio; the app's internal jobs need no broker."""
OWN_QUEUE = "dubbing"
PATIENCE = RetryPolicy(max_attempts=3, first_delay=timedelta(seconds=1), longest_delay=timedelta(minutes=5), jitter=0.1)
LONG_PATIENCE = replace(PATIENCE, max_attempts=100, longest_delay=timedelta(minutes=1))
GRACE_SECONDS = 15
"""How long a step may take to notice its timeout before the platform ends it."""


class DubPipeline:
    """The app's pipeline: starts and finds its runs, and records how they end."""

    def __init__(self, app: App, services: Services, *, requeue: Callable[[int], int]) -> None:
        self._app, self._services = app, services
        self._compensation = self._register_own(requeue)
        self._pipeline = self._declare()

    def start(self, tx: Connection, task: Task, *, revision: int) -> RunHandle:
        """Start a run for a task's revision in the caller's transaction; each run has its own trace id."""
        settings = self._services.settings
        with traced(trace_id=uuid5(UUID(task.id), f"r{revision}").hex):
            return self._pipeline.start(
                run_key(task.id, revision),
                tx=tx.raw,
                task_id=task.id,
                source_video_key=task.source_video_key,
                output_audio_key=keys.audio_key(task.id),
                output_key=keys.asr_key(task.id),
                source_language=task.source_language,
                target_language=task.target_language,
                translate_batch_size=settings.translate_batch_size,
                tts_batch_size=settings.tts_batch_size,
                max_concurrency=settings.tts_max_concurrency,
                max_retries=settings.tts_max_retries,
                retry_delay_sec=settings.tts_retry_delay_seconds,
                speaker_id=task.options.speaker,
                tts_audio_key=keys.dub_key(task.id),
                output_video_key=task.output_video_key,
            )

    def find(self, tx: Connection, task: Task) -> RunHandle | None:
        """Find the run of a task's revision, as the transaction sees it."""
        return self._pipeline.find(run_key(task.id, task.revision), tx=tx.raw)

    def _declare(self) -> Pipeline:
        dub = self._app.pipeline("dub", on_complete=self._register(self._ended, "dub_ended", OWN_QUEUE, LONG_PATIENCE))
        services = self._services
        extract = dub.step(
            self._step_task("extract_audio", ExtractAudio(services).handle),
            name="extract_audio",
            inputs={name: dub.input(name) for name in ("source_video_key", "output_audio_key")},
        )
        heard = dub.step(
            self._step_task("asr", Asr(services).handle),
            name="asr",
            inputs={
                "audio_key": extract,
                "language": dub.input("source_language"),
                "output_key": dub.input("output_key"),
            },
        )
        translated = dub.step(
            self._step_task("translate", Translate(services).handle),
            name="translate",
            each={"segment_ids": heard["chunks"]},
            inputs={
                "task_id": dub.input("task_id"),
                "source_language": dub.input("source_language"),
                "target_language": dub.input("target_language"),
                "batch_size": dub.input("translate_batch_size"),
            },
        )
        spoken = dub.step(
            self._step_task("tts", Tts(services, compensate=self._compensate).handle),
            name="tts",
            inputs={
                "task_id": dub.input("task_id"),
                "batch_size": dub.input("tts_batch_size"),
                "max_concurrency": dub.input("max_concurrency"),
                "max_retries": dub.input("max_retries"),
                "retry_delay_sec": dub.input("retry_delay_sec"),
                "speaker_id": dub.input("speaker_id"),
            },
            parents=[translated],
        )
        dub.step(
            self._step_task("mux_video", MuxVideo(services).handle),
            name="mux_video",
            inputs={
                name: dub.input(name) for name in ("task_id", "source_video_key", "tts_audio_key", "output_video_key")
            },
            parents=[spoken],
        )
        return dub

    def _step_task(self, name: str, function: Callable[..., Any]) -> AppTask[..., Any]:
        timeout = timedelta(seconds=self._services.settings.timeout(name) + GRACE_SECONDS)
        return self._register(function, name, name, PATIENCE, timeout=timeout)

    def _register(
        self, function: Callable[..., Any], name: str, queue: str, retry: RetryPolicy, **options: Any
    ) -> AppTask[..., Any]:
        task: AppTask[..., Any] = self._app.task(name=name, queue=queue, retry=retry, **options)(function)
        return task

    def _register_own(self, requeue: Callable[[int], int]) -> AppTask[..., Any]:
        """Register the tasks that handle segments that could not be spoken."""

        def tts_requeue(limit: int) -> int:
            return requeue(limit)

        again = self._register(tts_requeue, "tts_requeue", OWN_QUEUE, PATIENCE)
        if rule := self._services.settings.requeue_rule:
            self._app.schedule("tts_requeue", rule, again.using(unique_key="tts_requeue").job(limit=100))
        return self._register(tts_compensation, COMPENSATION, COMPENSATION, PATIENCE)

    def _compensate(self, tx: Connection, task_id: str, segment_idx: int, error: str) -> None:
        [(now,)] = tx.all("now")
        self._compensation.using(tx.raw).enqueue(
            task_id=task_id,
            segment_idx=segment_idx,
            error=error,
            created_at=datetime.fromtimestamp(now / 1_000_000, UTC).isoformat(timespec="seconds")[:-6] + "Z",
            routing_key="task.tts",
        )

    def _ended(self, job: JobContext, run_id: str) -> None:
        """Record on the task how its run ended, unless it has been retried or replaced in the meantime."""
        with self._services.database.transaction() as tx:
            task = tasks.lock_by_run(tx, run_id)
            run = None if task is None else self.find(tx, task)
            if task is not None and run is not None:
                seen = run.graph(tx=tx.raw)
                if seen.state is RunState.CANCELLED:
                    tasks.set_status(tx, task.id, "cancelled", error="it was cancelled")
                elif seen.state is not RunState.RUNNING and task.status != "done":
                    tasks.set_status(tx, task.id, "failed", error=None if task.error else seen.error)
                    log.error("task %s failed: %s", task.id, task.error or seen.error)
            job.complete(tx.raw)


def tts_compensation(task_id: str, segment_idx: int, error: str, created_at: str, routing_key: str) -> None:
    """Log a segment that could not be spoken; it stays in its table for `tts-requeue`."""
    log.warning(
        "segment %d of task %s could not be spoken (%s, %s); `stagepost-dubbing tts-requeue` sends %s again",
        segment_idx, task_id, error, created_at, routing_key,
    )  # fmt: skip


def run_key(task_id: str, revision: int) -> str:
    """Return the key of a revision's run."""
    return task_id if revision == 1 else f"{task_id}:r{revision}"
