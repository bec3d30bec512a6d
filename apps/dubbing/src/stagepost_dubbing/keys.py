"""Keys of a task's objects, derived from the task's id, and checks that refuse keys of other tasks."""

from __future__ import annotations

import hashlib
import re
from uuid import UUID

from stagepost import Permanent

__all__ = [
    "asr_key",
    "audio_key",
    "checked_id",
    "checked_key",
    "checked_own",
    "dub_key",
    "output_key",
    "speech_key",
    "subtitles_key",
    "task_of",
    "video_key",
]

LONGEST_KEY = 900
SHAPE = re.compile(r"(?:videos|audios|asr|tts|outputs)/[^/]+/[^/]+")
FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\%?#*]|//|(?:^|/)\.{1,2}(?:/|$)")
"""Control characters, characters with a meaning in file systems and URLs, and paths that leave a directory."""


def video_key(task_id: str) -> str:
    """Key of the submitted video."""
    return f"videos/{checked_id(task_id)}/source.mp4"


def audio_key(task_id: str) -> str:
    """Key of the video's sound, for the recogniser."""
    return f"audios/{checked_id(task_id)}/source.wav"


def asr_key(task_id: str) -> str:
    """Key of the transcript with its times."""
    return f"asr/{checked_id(task_id)}/asr.json"


def speech_key(task_id: str, idx: int, made_of: str) -> str:
    """Key of one segment's speech; other words, voices or slots (`made_of`) have another key."""
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    return f"tts/{checked_id(task_id)}/{idx:05}-{digest}.wav"


def dub_key(task_id: str) -> str:
    """Key of the complete new sound track."""
    return f"tts/{checked_id(task_id)}/dub.wav"


def output_key(task_id: str) -> str:
    """Key of the dubbed video."""
    return f"outputs/{checked_id(task_id)}/final.mp4"


def subtitles_key(task_id: str, which: str, kind: str) -> str:
    """Key of subtitles; `which` is source or target, `kind` is srt or vtt."""
    return f"outputs/{checked_id(task_id)}/{which}.{kind}"


def checked_id(task_id: str) -> str:
    """Normalize a task's id to the form that databases use; refuses anything but a UUID."""
    try:
        return str(UUID(task_id))
    except (ValueError, AttributeError, TypeError):
        raise Permanent(f"{task_id!r} is not a task id: it must be a UUID.") from None


def checked_key(key: str) -> str:
    """Refuse keys in another format, above all those that lead out of the store."""
    if len(key) > LONGEST_KEY or FORBIDDEN.search(key) or not SHAPE.fullmatch(key):
        raise Permanent(
            f"object key {key[:100]!r} is refused: keys look like videos/<task id>/source.mp4, "
            f"with at most {LONGEST_KEY} characters."
        )
    checked_id(key.split("/")[1])
    return key


def checked_own(key: str, folder: str, task_id: str) -> str:
    """Refuse a key outside this task's folder, so that a message for one task cannot affect another."""
    if checked_key(key).split("/")[:2] != [folder, checked_id(task_id)]:
        raise Permanent(
            f"object key {key[:100]!r} is refused: in a message for this task it must begin with {folder}/{task_id}/."
        )
    return key


def task_of(key: str) -> str:
    """Return the id of the task that an object belongs to."""
    return checked_id(checked_key(key).split("/")[1])
