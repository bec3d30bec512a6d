"""Rows of `segments`: what is said when, its translation, and where it is spoken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from stagepost_dubbing.tables.connection import Connection

__all__ = ["Segment", "SegmentCounts", "change_text", "count", "list_all", "replace_all", "save_speech", "save_text"]

COLUMNS = "idx, segment_id, start_ms, end_ms, src_text, mt_text, tts_audio_key, tts_params_json, tts_error"


class Segment(msgspec.Struct, frozen=True):
    """Something that is said, in both languages."""

    idx: int
    segment_id: str
    start_ms: int
    end_ms: int
    src_text: str
    mt_text: str | None = None
    tts_audio_key: str | None = None
    tts_params_json: str | None = None
    tts_error: str | None = None

    @property
    def seconds(self) -> float:
        """How long its slot is."""
        return (self.end_ms - self.start_ms) / 1000


class SegmentCounts(msgspec.Struct, frozen=True):
    """How many segments a task has, and how many of them have come how far."""

    total: int
    translated: int
    spoken: int


def replace_all(tx: Connection, task_id: str, segments: Iterable[Segment]) -> None:
    """Store what was recognised, in place of what may be there."""
    tx.execute("delete from segments where task_id = ?", (task_id,))
    for segment in segments:
        tx.execute(
            "insert into segments (task_id, idx, segment_id, start_ms, end_ms, src_text) values (?, ?, ?, ?, ?, ?)",
            (task_id, segment.idx, segment.segment_id, segment.start_ms, segment.end_ms, segment.src_text),
        )


def list_all(tx: Connection, task_id: str) -> list[Segment]:
    """All segments of a task, in order."""
    return _read(tx.all("select " + COLUMNS + " from segments where task_id = ? order by idx", (task_id,)))


def untranslated(tx: Connection, task_id: str, *, among: Sequence[str], most: int) -> list[Segment]:
    """The first segments without a translation, among those with these ids."""
    found: list[Segment] = []
    for start in range(0, len(among), 500):  # few enough for every database's limit of parameters
        ids = among[start : start + 500]
        marks = ", ".join("?" * len(ids))
        found += _read(
            tx.all(
                "select " + COLUMNS + " from segments where task_id = ? and mt_text is null and segment_id in ("
                + marks + ") order by idx limit ?",
                (task_id, *ids, most),
            )
        )  # fmt: skip
    return sorted(found, key=lambda segment: segment.idx)[:most]


def unspoken(tx: Connection, task_id: str, *, after: int, most: int) -> list[Segment]:
    """The next segments without speech, after the one with index `after`."""
    return _read(
        tx.all(
            "select " + COLUMNS + " from segments where task_id = ? and tts_audio_key is null and idx > ?"
            " order by idx limit ?",
            (task_id, after, most),
        )
    )


def save_text(tx: Connection, task_id: str, idx: int, text: str) -> bool:
    """Store a translation, unless there is one."""
    sql = "update segments set mt_text = ? where task_id = ? and idx = ? and mt_text is null"
    return tx.execute(sql, (text, task_id, idx)) > 0


def save_speech(tx: Connection, task_id: str, segment: Segment, *, key: str, parameters: str) -> bool:
    """Store where a segment is spoken, unless its text was changed meanwhile or somebody else was first."""
    return (
        tx.execute(
            "update segments set tts_audio_key = ?, tts_params_json = ?, tts_error = null"
            " where task_id = ? and idx = ? and tts_audio_key is null and mt_text = ?",
            (key, parameters, task_id, segment.idx, segment.mt_text),
        )
        > 0
    )


def save_trouble(tx: Connection, task_id: str, idx: int, error: str) -> None:
    """Store why a segment could not be spoken."""
    tx.execute("update segments set tts_error = ? where task_id = ? and idx = ?", (error, task_id, idx))


def change_text(tx: Connection, task_id: str, idx: int, text: str) -> bool:
    """Give a segment another translation; it is to be spoken anew."""
    return (
        tx.execute(
            "update segments set mt_text = ?, tts_audio_key = null, tts_params_json = null, tts_error = null"
            " where task_id = ? and idx = ?",
            (text, task_id, idx),
        )
        > 0
    )


def count(tx: Connection, task_id: str) -> SegmentCounts:
    """Count a task's segments."""
    row = tx.one("select count(*), count(mt_text), count(tts_audio_key) from segments where task_id = ?", (task_id,))
    return SegmentCounts(*(map(int, row) if row else (0, 0, 0)))


def _read(rows: Iterable[tuple[object, ...]]) -> list[Segment]:
    return [Segment(*row) for row in rows]  # type: ignore[arg-type]  # as the columns are
