"""Rows of `segments`: what is said when, its translation, and where it is spoken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from stagepost import Permanent
from stagepost_dubbing.tables.connection import Connection, shortened

__all__ = [
    "Segment",
    "SegmentCounts",
    "change_text",
    "count",
    "index_of",
    "list_all",
    "replace_all",
    "save_speech",
    "save_text",
    "save_trouble",
    "segment_id_of",
    "unspoken",
    "untranslated",
]

PREFIX = "seg-"


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


def replace_all(tx: Connection, task_id: str, found: Iterable[Segment]) -> None:
    """Store what was recognised, in place of what may be there."""
    tx.change("delete_segments", task_id=task_id)
    for segment in found:
        tx.change("add_segment", task_id=task_id, **msgspec.structs.asdict(segment))


def list_all(tx: Connection, task_id: str) -> list[Segment]:
    """All segments of a task, in order."""
    return [Segment(*row) for row in tx.all("list_segments", task_id=task_id)]


def untranslated(tx: Connection, task_id: str, *, among: Sequence[str]) -> list[Segment]:
    """The segments without a translation, among those with these ids, in order."""
    numbers = [index_of(segment_id) for segment_id in among]
    rows = tx.all("list_untranslated", task_id=task_id, first=min(numbers), last=max(numbers))
    wanted = set(numbers)
    return [segment for segment in (Segment(*row) for row in rows) if segment.idx in wanted]


def unspoken(tx: Connection, task_id: str, *, after: int, most: int) -> list[Segment]:
    """The next segments without speech, after the one with index `after`."""
    return [Segment(*row) for row in tx.all("list_unspoken", task_id=task_id, after=after, most=most)]


def save_text(tx: Connection, task_id: str, idx: int, text: str) -> None:
    """Store a translation, unless there is one."""
    tx.change("save_text", task_id=task_id, idx=idx, text=text)


def save_speech(tx: Connection, task_id: str, segment: Segment, *, key: str, parameters: str) -> None:
    """Store where a segment is spoken, unless its text was changed meanwhile or somebody else was first."""
    tx.change("save_speech", task_id=task_id, idx=segment.idx, text=segment.mt_text, key=key, parameters=parameters)


def save_trouble(tx: Connection, task_id: str, idx: int, error: str) -> None:
    """Store why a segment could not be spoken."""
    tx.change("save_trouble", task_id=task_id, idx=idx, error=shortened(error))


def change_text(tx: Connection, task_id: str, idx: int, text: str) -> None:
    """Give a segment another translation; it is to be spoken anew."""
    tx.change("change_text", task_id=task_id, idx=idx, text=text)


def count(tx: Connection, task_id: str) -> SegmentCounts:
    """Count a task's segments."""
    row = tx.one("count_segments", task_id=task_id)
    return SegmentCounts(*(map(int, row) if row else (0, 0, 0)))


def segment_id_of(idx: int) -> str:
    """What messages call the segment with this index."""
    return f"{PREFIX}{idx}"


def index_of(segment_id: str) -> int:
    """The index of a segment that messages call so."""
    number = segment_id.removeprefix(PREFIX)
    if not (segment_id.startswith(PREFIX) and number.isascii() and number.isdigit() and len(number) < 10):
        raise Permanent(f"segment id {segment_id[:50]!r} is refused: they are like seg-0.")
    return int(number)
