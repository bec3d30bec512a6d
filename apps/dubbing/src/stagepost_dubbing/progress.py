"""Computes a task's progress, step by step, from its rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stagepost_dubbing.settings import STEPS
from stagepost_dubbing.tables.segments import SegmentCounts
from stagepost_dubbing.tables.steps import StepRow

__all__ = ["StepProgress", "progress_of"]


class StepProgress(msgspec.Struct, frozen=True):
    """The progress of one step, for display."""

    step: str
    status: str
    """waiting, running, succeeded, failed or stale."""
    done: float
    """The completed share, from 0 to 1."""
    segments: tuple[int, int] | None
    """The number of finished segments and of all segments; None for steps that do not count them."""
    attempts: int
    seconds: float
    """Total duration of its ended attempts."""
    error: str | None


def progress_of(rows: Sequence[StepRow], counts: SegmentCounts) -> list[StepProgress]:
    """Compute the progress of each step; `rows` are all attempts, in order."""
    return [_progress(step, [row for row in rows if row.step == step], counts) for step in STEPS]


def _progress(step: str, rows: Sequence[StepRow], counts: SegmentCounts) -> StepProgress:
    last = list({row.part: row for row in rows}.values())
    status = _status(last)
    counted = {"translate": counts.translated, "tts": counts.spoken}.get(step)
    segments = None if counted is None or not counts.total else (counted, counts.total)
    done = 1.0 if status == "succeeded" else 0.0
    if segments is not None:
        done = segments[0] / segments[1]
    elif status == "running":
        done = last[-1].progress
    seconds = sum((row.finished_at - row.started_at) / 1e6 for row in rows if row.finished_at is not None)
    errors = [row.error for row in last if row.status == "failed" and row.error is not None]
    return StepProgress(step, status, done, segments, len(rows), seconds, errors[0] if errors else None)


def _status(last: Sequence[StepRow]) -> str:
    found = {row.status for row in last}
    for status in ("running", "failed", "stale", "succeeded"):
        if status in found:
            return status
    return "waiting"
