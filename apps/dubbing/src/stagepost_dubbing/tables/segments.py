"""Rows of `segments`: the original text and its time, the translation, and the key of its speech."""

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
    """One spoken segment, in both languages."""

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
        """Length of the segment's time slot."""
        return (self.end_ms - self.start_ms) / 1000


class SegmentCounts(msgspec.Struct, frozen=True):
    """Number of a task's segments, in total and at each stage."""

    total: int
    translated: int
    spoken: int


def replace_all(tx: Connection, task_id: str, found: Iterable[Segment]) -> None:
    """Store recognised segments, and replace existing ones."""
    tx.change("delete_segments", task_id=task_id)
    for segment in found:
        tx.change("add_segment", task_id=task_id, **msgspec.structs.asdict(segment))


def list_all(tx: Connection, task_id: str) -> list[Segment]:
    """List all segments of a task, in order."""
    return [Segment(*row) for row in tx.all("list_segments", task_id=task_id)]


def untranslated(tx: Connection, task_id: str, *, among: Sequence[str]) -> list[Segment]:
    """List those of the given segments that have no translation, in order."""
    numbers = [index_of(segment_id) for segment_id in among]
    rows = tx.all("list_untranslated", task_id=task_id, first=min(numbers), last=max(numbers))
    wanted = set(numbers)
    return [segment for segment in (Segment(*row) for row in rows) if segment.idx in wanted]


def unspoken(tx: Connection, task_id: str, *, after: int, most: int) -> list[Segment]:
    """List the next segments without speech, after index `after`."""
    return [Segment(*row) for row in tx.all("list_unspoken", task_id=task_id, after=after, most=most)]


def save_text(tx: Connection, task_id: str, idx: int, text: str) -> None:
    """Store a translation, unless there already is one."""
    tx.change("save_text", task_id=task_id, idx=idx, text=text)


def save_speech(tx: Connection, task_id: str, segment: Segment, *, key: str, parameters: str) -> None:
    """Store the key of a segment's speech, unless its text has changed or it already has speech."""
    tx.change("save_speech", task_id=task_id, idx=segment.idx, text=segment.mt_text, key=key, parameters=parameters)


def save_trouble(tx: Connection, task_id: str, idx: int, error: str) -> None:
    """Store why a segment could not be spoken."""
    tx.change("save_trouble", task_id=task_id, idx=idx, error=shortened(error))


def change_text(tx: Connection, task_id: str, idx: int, text: str) -> None:
    """Change a segment's translation, and mark it to be spoken again."""
    tx.change("change_text", task_id=task_id, idx=idx, text=text)


def count(tx: Connection, task_id: str) -> SegmentCounts:
    """Count a task's segments."""
    row = tx.one("count_segments", task_id=task_id)
    return SegmentCounts(*(map(int, row) if row else (0, 0, 0)))


def segment_id_of(idx: int) -> str:
    """Return the id that messages use for the segment with this index."""
    return f"{PREFIX}{idx}"


def index_of(segment_id: str) -> int:
    """Return the index of the segment with this id; raises Permanent if the id is invalid."""
    number = segment_id.removeprefix(PREFIX)
    if not (segment_id.startswith(PREFIX) and number.isascii() and number.isdigit() and len(number) < 10):
        raise Permanent(f"segment id {segment_id[:50]!r} is refused: ids look like seg-0.")
    return int(number)
