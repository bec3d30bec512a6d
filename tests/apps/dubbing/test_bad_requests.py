"""Requests that cannot be fulfilled: refused at once, or a clear error on the task, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stagepost import Permanent
from stagepost_dubbing import Dubbing, DubbingError, DubOptions
from stagepost_dubbing.settings import STEPS
from tests.apps.dubbing.checks import files_in, left_in
from tests.apps.dubbing.conftest import MakeDubbing
from tests.apps.dubbing.workers import dubbed, statuses, work

NO_TASK = "0b1c7f2e-6a0d-4f5e-9a52-1f0d5b6c7d8e"


class Refused(NamedTuple):
    """A request that is refused before anything is stored."""

    name: str
    arguments: dict[str, Any]
    sentence: str


REFUSED = [
    Refused("missing file", {"video": "missing.mp4"}, r"missing\.mp4 cannot be read: No such file"),
    Refused("folder", {"video": "."}, "cannot be read: Is a directory"),
    Refused("pipe", {"video": "pipe.mp4"}, r"pipe\.mp4 is not a regular file"),
    Refused("nul in name", {"video": "nul\0.mp4"}, "cannot be read: embedded null"),
    Refused("unreadable", {"video": "locked/video.mp4"}, "cannot be read: "),
    Refused("no language", {"to": ""}, "'' is not a language code; write it like"),
    Refused("language with a path", {"to": "../pt"}, "is not a language code"),
    Refused("language of spaces", {"source": " "}, "is not a language code"),
    Refused("same language", {"to": "EN"}, "is in 'en' and should be dubbed into 'en': there is nothing to do"),
    Refused("id that leads out", {"id": "../../etc"}, "is not a task id: it must be a UUID"),
    Refused("id with a path", {"id": f"{NO_TASK}/../x"}, "is not a task id"),
    Refused("speaker with NUL", {"options": DubOptions(speaker="a\0b")}, r"the speaker contains '\\x00'"),
    Refused("speaker without end", {"options": DubOptions(speaker="a" * 101)}, "101 characters; the limit is 100"),
    Refused("louder original", {"options": DubOptions(duck_db=20.0)}, r"cannot be at 20 dB: use -100 to"),
    Refused("no number", {"options": DubOptions(duck_db=float("nan"))}, "cannot be at nan dB"),
]


@pytest.mark.parametrize("refused", REFUSED, ids=[refused.name for refused in REFUSED])
def test_a_request_that_cannot_be_is_refused_at_once(
    make_dubbing: MakeDubbing, tmp_path: Path, small_video: Path, refused: Refused
) -> None:
    dubbing = make_dubbing()
    os.mkfifo(tmp_path / "pipe.mp4")
    (tmp_path / "locked").write_bytes(b"not a directory")
    arguments: dict[str, Any] = {"video": small_video, "to": "pt"} | refused.arguments
    arguments["video"] = tmp_path / arguments["video"]

    with pytest.raises((DubbingError, Permanent), match=refused.sentence):
        dubbing.submit(**arguments)

    assert (dubbing.tasks(), dubbing.app.client.jobs(limit=10)) == ([], [])
    assert files_in(tmp_path / "home" / "objects") == []


class Unable(NamedTuple):
    """A request that an engine turns out to be unable to fulfil."""

    name: str
    variables: dict[str, str]
    arguments: dict[str, Any]
    step: str
    sentence: str


UNABLE = [
    Unable(
        "unknown source", {"DUBBING_RECOGNISER": "moonshine"}, {"source": "xx"}, "asr", "support only English, not 'xx'"
    ),
    Unable(
        "unknown target",
        {"DUBBING_TRANSLATOR": "offline"},
        {"to": "xx"},
        "translate",
        "supports only English and Portuguese, not 'en' to",
    ),
    Unable("nobody speaks it", {"DUBBING_VOICE": "espeak"}, {"to": "xx"}, "tts", "has no voice for 'xx'; it has: "),
    Unable(
        "unknown speaker",
        {"DUBBING_VOICE": "espeak"},
        {"options": DubOptions(speaker="../../etc/passwd")},
        "tts",
        "has no speaker '../../etc/passwd'; choose default, or one of",
    ),
]


@pytest.mark.parametrize("unable", UNABLE, ids=[unable.name for unable in UNABLE])
def test_what_no_engine_can_do_fails_its_step_once(
    make_dubbing: MakeDubbing, tmp_path: Path, small_video: Path, unable: Unable
) -> None:
    dubbing = make_dubbing(**unable.variables)

    task = work(dubbing, dubbing.submit(small_video, **({"to": "pt"} | unable.arguments)).id)

    assert task.status == "failed"
    assert (task.error or "").startswith(f"{unable.step}: "), task.error
    assert unable.sentence in (task.error or "")
    done = STEPS[: STEPS.index(unable.step)]
    assert statuses(dubbing, task.id) == [*((step, 1, "succeeded") for step in done), (unable.step, 1, "failed")]
    folders = {"asr": "audios videos", "translate": "asr audios videos", "tts": "asr audios videos"}[unable.step]
    assert {key.split("/")[0] for key in files_in(tmp_path / "home" / "objects")} == set(folders.split())
    assert left_in(tmp_path / "work") == []


EDITS = [
    (0, "x" * 5001, r"the text has 5,001 characters; the limit is 5,000"),
    (0, "x" * 10_000_000, r"the text has 10,000,000 characters"),
    (0, "nul \0", r"the text contains '\\x00', which is not valid text"),
    (0, "half a letter \ud83d", r"the text contains '\\ud83d', which is not valid text"),
    (5, "x", "has no segment 5: they are numbered from 0 to 4"),
    (-1, "x", "has no segment -1"),
    (10**30, "x", "has no segment 1000"),
]


def test_an_edit_that_cannot_be_changes_nothing(dubbing: Dubbing, small_video: Path) -> None:
    task = dubbed(dubbing, small_video)

    for idx, text, sentence in EDITS:
        with pytest.raises(DubbingError, match=sentence):
            dubbing.edit(task.id, idx, text)

    assert (dubbing.task(task.id), dubbing.segments(task.id)[0].mt_text) == (task, "ALPHA ONE")


def test_an_edit_may_be_in_any_writing(dubbing: Dubbing, small_video: Path) -> None:
    task = dubbed(dubbing, small_video)

    dubbing.edit(task.id, 0, "नमस्\u200dते 👩\u200d🚀\nमेरा")

    assert work(dubbing, task.id).status == "done"
