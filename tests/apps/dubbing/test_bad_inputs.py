"""Bad input through the whole application: a clear error on the task, no second try, and nothing left behind.

What stays is the video as it was handed in, and what steps before the failure made: `retry` goes on from there.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import obstore
import psutil
import pytest

from stagepost import Job, JobState, Permanent, Worker
from stagepost_dubbing import Dubbing, DubbingError, DubOptions, Task
from stagepost_dubbing.settings import STEPS
from tests.apps.dubbing.bad_videos import BAD, Case, sources
from tests.apps.dubbing.conftest import MakeDubbing, quick_variables
from tests.apps.dubbing.s3 import S3Server
from tests.apps.dubbing.stand_ins import Control
from tests.apps.dubbing.test_core_distributed import Ear, ear, variables  # noqa: F401 - fixtures
from tests.apps.dubbing.test_core_faults import PATIENCE_SECONDS, worker_process
from tests.apps.dubbing.test_core_pipeline import dubbed, statuses, work

LIMIT = 120.0
NO_TASK = "0b1c7f2e-6a0d-4f5e-9a52-1f0d5b6c7d8e"
NO_FILES = {"missing.mp4", "folder.mp4", "pipe.mp4", "nul\0.mp4", "name\nwith a line.mp4"}
"""Refused before they are stored; the last has nothing wrong but its name, which it has not in the store."""
BY_NAME = {"playlist-of-file.m3u8", "playlist-of-system-file.m3u8", "playlist-of-address.m3u8", "dash.mpd"}
"""What they are is told by names that they do not have in the store."""
UPLOADS = [case for case in BAD if case.name not in NO_FILES]


def work_until_idle(dubbing: Dubbing, *queues: str) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT):
            await Worker(dubbing.app, queues=queues).run(until_idle=True)

    asyncio.run(run())


def files_in(directory: Path) -> list[str]:
    """Every file, those that no store would list as well."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())


def left_in(directory: Path) -> list[str]:
    """Files and directories that should have gone."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def ids(cases: list[Case]) -> list[str]:
    return [case.name for case in cases]


class Uploads(NamedTuple):
    """All bad videos after one worker has seen them."""

    dubbing: Dubbing
    directory: Path
    tasks: dict[str, Task]
    """By the name of the case."""
    jobs: list[Job]


@pytest.fixture(scope="module")
def uploads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uploads]:
    """Submit them all, and work until nothing is due."""
    directory = tmp_path_factory.mktemp("uploads")
    for name in ("control", "files", "temporary"):
        (directory / name).mkdir()
    sources()
    environment = quick_variables(directory, Control(directory / "control"))
    with pytest.MonkeyPatch.context() as patched, Dubbing(environment=environment) as dubbing:
        patched.setattr(tempfile, "tempdir", str(directory / "temporary"))
        given = {}
        for case in UPLOADS:
            case.make(directory / "files" / case.name)
            video = directory / "files" / case.name
            given[case.name] = dubbing.submit(video, to="pt", id=str(uuid4())).id
        work_until_idle(dubbing)
        tasks = {name: dubbing.task(task_id) for name, task_id in given.items()}
        yield Uploads(dubbing, directory, tasks, dubbing.app.client.jobs(most=1000))


@pytest.mark.parametrize("case", UPLOADS, ids=ids(UPLOADS))
def test_a_bad_video_fails_its_task_at_the_first_step(uploads: Uploads, case: Case) -> None:
    task = uploads.tasks[case.name]

    error = task.error or ""
    assert (task.status, error[:26]) == ("failed", "extract_audio: Permanent: "), error
    assert re.search("is not a video" if case.name in BY_NAME else case.sentence or "", error), error
    assert len(error) < 600
    assert str(uploads.directory) not in error
    assert statuses(uploads.dubbing, task.id) == [("extract_audio", 1, "failed")]
    assert uploads.dubbing.services.objects.list(f"videos/{task.id}") == [task.source_video_key]


def test_bad_videos_leave_nothing_but_themselves(uploads: Uploads) -> None:
    ids = {task.id for task in uploads.tasks.values()}

    assert len(ids) == len(UPLOADS) >= 25
    assert files_in(uploads.directory / "home" / "objects") == sorted(f"videos/{task_id}/source.mp4" for task_id in ids)
    assert (left_in(uploads.directory / "work"), left_in(uploads.directory / "temporary")) == ([], [])
    assert [child for child in psutil.Process().children(recursive=True) if "ffmpeg" in child.name()] == []
    steps = [job for job in uploads.jobs if job.task_name in STEPS]
    assert {(job.task_name, job.state, job.attempt) for job in steps} >= {("extract_audio", JobState.FAILED, 1)}
    assert {job.state for job in steps} <= {JobState.FAILED, JobState.CANCELLED}
    assert {job.state for job in uploads.jobs} <= {JobState.FAILED, JobState.CANCELLED, JobState.COMPLETED}


class Refused(NamedTuple):
    """A request that is refused before anything is stored."""

    name: str
    arguments: dict[str, Any]
    sentence: str


REFUSED = [
    Refused("missing file", {"video": "missing.mp4"}, r"missing\.mp4 cannot be read: No such file"),
    Refused("folder", {"video": "."}, "cannot be read: Is a directory"),
    Refused("pipe", {"video": "pipe.mp4"}, r"pipe\.mp4 is not a file"),
    Refused("nul in name", {"video": "nul\0.mp4"}, "cannot be read: embedded null"),
    Refused("unreadable", {"video": "locked/video.mp4"}, "cannot be read: "),
    Refused("no language", {"to": ""}, "'' is no language code; write it like"),
    Refused("language with a path", {"to": "../pt"}, "is no language code"),
    Refused("language of spaces", {"source": " "}, "is no language code"),
    Refused("same language", {"to": "EN"}, "is in 'en', and asked for in 'en': there is nothing to dub"),
    Refused("id that leads out", {"id": "../../etc"}, "is no task id: those are UUIDs"),
    Refused("id with a path", {"id": f"{NO_TASK}/../x"}, "is no task id"),
    Refused("speaker with NUL", {"options": DubOptions(speaker="a\0b")}, r"the speaker holds '\\x00'"),
    Refused("speaker without end", {"options": DubOptions(speaker="a" * 101)}, "101 characters: 100 is the most"),
    Refused("louder original", {"options": DubOptions(duck_db=20.0)}, r"cannot be 20 dB under the voice: give -100 to"),
    Refused("no number", {"options": DubOptions(duck_db=float("nan"))}, "cannot be nan dB under the voice"),
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

    assert (dubbing.tasks(), dubbing.app.client.jobs(most=10)) == ([], [])
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
        "unknown source", {"DUBBING_RECOGNISER": "moonshine"}, {"source": "xx"}, "asr", "know English only, not 'xx'"
    ),
    Unable(
        "unknown target", {"DUBBING_TRANSLATOR": "offline"}, {"to": "xx"}, "translate", "Portuguese only, not 'en' to"
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


class Forged(NamedTuple):
    """A message that somebody sends straight to a step; {own} and {other} are tasks."""

    name: str
    step: str
    payload: Any
    sentence: str


VIDEO, AUDIO, HEARD = "videos/{own}/source.mp4", "audios/{own}/source.wav", "asr/{own}/asr.json"
TRANSLATE = {"source_language": "en", "target_language": "pt", "batch_size": 5}
MUX = {"task_id": "{own}", "tts_audio_key": "tts/{own}/dub.wav", "output_video_key": "outputs/{own}/final.mp4"}
TTS = {"batch_size": 5, "max_concurrency": 2, "max_retries": 1, "retry_delay_sec": 0.1, "speaker_id": "default"}
REFUSES, BELONGS = "is refused: keys are like", "is refused: in a message for this task it begins"


def transcribe(**changes: Any) -> dict[str, Any]:
    return {"audio_key": AUDIO, "language": "en", "output_key": HEARD, **changes}


def translate(segment_ids: Any, task_id: str = "{own}") -> dict[str, Any]:
    return {"task_id": task_id, "segment_ids": segment_ids, **TRANSLATE}


def speak(**changes: Any) -> dict[str, Any]:
    return {"task_id": "{own}", **TTS, **changes}


def extract(source: Any = VIDEO, output: Any = AUDIO) -> dict[str, Any]:
    return {"source_video_key": source, "output_audio_key": output}


FORGED = [
    Forged("way out", "extract_audio", extract("videos/../../../etc/passwd"), REFUSES),
    Forged("way out of the task", "extract_audio", extract("videos/{own}/../{other}/source.mp4"), REFUSES),
    Forged("absolute", "extract_audio", extract("/etc/passwd"), REFUSES),
    Forged("address", "extract_audio", extract("http://127.0.0.1/x.mp4"), REFUSES),
    Forged("encoded way out", "extract_audio", extract("videos/{own}/%2e%2e"), REFUSES),
    Forged("other system's way out", "extract_audio", extract("videos\\{own}\\..\\x"), REFUSES),
    Forged("NUL", "extract_audio", extract("videos/{own}/a\0.mp4"), REFUSES),
    Forged("endless key", "extract_audio", extract("videos/{own}/" + "a" * 5000), REFUSES),
    Forged("empty key", "extract_audio", extract(""), REFUSES),
    Forged("not an id", "extract_audio", extract("videos/seven/source.mp4"), "is no task id"),
    Forged("into another task", "extract_audio", extract(output="audios/{other}/source.wav"), BELONGS),
    Forged("over the video", "extract_audio", extract(output="videos/{own}/source.mp4"), BELONGS),
    Forged("number for a key", "extract_audio", extract(7), "for `source_video_key: str`: Expected `str`, got `int`"),
    Forged("nothing", "extract_audio", {}, "missing required field `source_video_key`"),
    Forged("a list", "extract_audio", ["x"], "Expected `object`, got `array`"),
    Forged("transcript of another", "asr", transcribe(output_key="asr/{other}/asr.json"), BELONGS),
    Forged("null for a key", "asr", transcribe(audio_key=None), "for `audio_key: str`: Expected `str`, got `null`"),
    Forged("no task", "translate", translate(["seg-0"], NO_TASK), f"there is no task {NO_TASK}"),
    Forged("unknown segment", "translate", translate(["seg-0", "seg-77"]), "has no segment seg-77: there are 5"),
    Forged("no segment id", "translate", translate(["../1"]), "segment id '../1' is refused"),
    Forged("no segments", "translate", translate([]), "without segment_ids"),
    Forged("text for a list", "translate", translate("seg-0"), "Expected `array`, got `str`"),
    Forged("not an id", "tts", speak(task_id="x' or 1=1 --"), "is no task id"),
    Forged("text for a number", "tts", speak(batch_size="many"), "Expected `int`, got `str`"),
    Forged("unknown argument", "tts", speak(command="rm -rf /"), "unknown field `command`. Its parameters are"),
    Forged("another's video", "mux_video", {**MUX, "source_video_key": "videos/{other}/source.mp4"}, BELONGS),
    Forged("output elsewhere", "mux_video", {**MUX, "source_video_key": VIDEO, "output_video_key": AUDIO}, BELONGS),
]


def send(dubbing: Dubbing, step: str, payload: str) -> str:
    """Ask for a step by hand, with a payload that no caller of ours could make."""
    task = dubbing.app.registry.get(step)
    usual = {"task_id": NO_TASK, "segment_ids": ["seg-0"], **TRANSLATE}
    made = dubbing.app.registry.get("translate").job(**usual)
    job = msgspec.structs.replace(made, task_name=task.name, queue_name=step, payload=payload)
    return dubbing.app.client.enqueue(job).id


def filled(value: Any, **tasks: str) -> str:
    text = json.dumps(value)
    for name, task_id in tasks.items():
        text = text.replace("{" + name + "}", task_id)
    return text


def contents(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in files_in(directory)}


def test_forged_messages_fail_once_and_touch_no_task(
    make_dubbing: MakeDubbing, tmp_path: Path, small_video: Path, control: Control
) -> None:
    dubbing = make_dubbing()
    own = dubbed(dubbing, small_video)
    other = dubbing.submit(small_video, to="es")
    with dubbing.services.database.transaction() as tx:
        tx.raw.execute("update stagepost_job set state = 'scheduled', available_at = 9e15 where state = 'queued'")
    before = (
        contents(tmp_path / "home" / "objects"),
        dubbing.attempts(own.id),
        dubbing.segments(own.id),
        control.calls,
    )

    sent = [send(dubbing, forged.step, filled(forged.payload, own=own.id, other=other.id)) for forged in FORGED]
    work_until_idle(dubbing)

    for forged, job_id in zip(FORGED, sent, strict=True):
        job = dubbing.app.client.job(job_id)
        assert (job.state, job.attempt) == (JobState.FAILED, 1), (forged, job.error)
        assert forged.sentence in (job.error or ""), (forged, job.error)
        assert len(job.error or "") < 600
    after = (contents(tmp_path / "home" / "objects"), dubbing.attempts(own.id), dubbing.segments(own.id), control.calls)
    assert after == before
    assert (dubbing.task(own.id), dubbing.task(other.id)) == (own, other)
    assert left_in(tmp_path / "work") == []


EDITS = [
    (0, "x" * 5001, r"the text has 5,001 characters: 5,000 is the most"),
    (0, "x" * 10_000_000, r"the text has 10,000,000 characters"),
    (0, "nul \0", r"the text holds '\\x00', which is no text"),
    (0, "half a letter \ud83d", r"the text holds '\\ud83d', which is no text"),
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


@pytest.fixture(params=["files", "s3"])
def kept_in(request: pytest.FixtureRequest) -> dict[str, str]:
    """Objects in a directory, and in S3."""
    if request.param == "files":
        return {}
    server: S3Server = request.getfixturevalue("s3")
    return {"DUBBING_OBJECTS_URL": server.url(str(uuid4()))}


@pytest.mark.parametrize(
    ("step", "key"),
    [
        ("extract_audio", "videos/{own}/source.mp4"),
        ("asr", "audios/{own}/source.wav"),
        ("mux_video", "videos/{own}/source.mp4"),
        ("mux_video", "tts/{own}/"),
    ],
    ids=["video", "sound", "video at the end", "speech"],
)
def test_an_object_that_was_deleted_fails_the_step_that_needs_it(
    make_dubbing: MakeDubbing, tmp_path: Path, small_video: Path, kept_in: dict[str, str], step: str, key: str
) -> None:
    dubbing = make_dubbing(**kept_in)
    task = dubbing.submit(small_video, to="pt")
    before = STEPS[: STEPS.index(step)]
    if before:
        work_until_idle(dubbing, *before)
    objects = dubbing.services.objects
    wanted = key.replace("{own}", task.id)
    deleted = next(found for found in objects.list() if found.startswith(wanted))
    obstore.delete(objects._store, deleted)
    kept = objects.list()

    work_until_idle(dubbing)

    task = dubbing.task(task.id)
    assert (task.status, task.error) == (
        "failed",
        f"{step}: Permanent: object {deleted} is missing: it was deleted, or never stored.",
    )
    assert statuses(dubbing, task.id) == [*((name, 1, "succeeded") for name in before), (step, 1, "failed")]
    assert objects.list() == kept
    assert left_in(tmp_path / "work") == []


def test_what_failed_for_good_is_announced_at_the_broker(
    make_dubbing: MakeDubbing,
    environment: dict[str, str],
    variables: dict[str, str],  # noqa: F811 - fixtures
    ear: Ear,  # noqa: F811
    tmp_path: Path,
) -> None:
    dubbing = make_dubbing(**variables)
    bad = [case for case in UPLOADS if case.name in {"empty.mp4", "without-sound.mp4", "half.mp4"}]
    expected = {}
    for case in bad:
        case.make(tmp_path / case.name)
        expected[dubbing.submit(tmp_path / case.name, to="pt").id] = case.sentence or ""
    forged = [one for one in FORGED if one.name in {"way out", "number for a key", "no task", "absolute"}]
    sent = {send(dubbing, one.step, filled(one.payload, own=NO_TASK)): re.escape(one.sentence) for one in forged}

    with worker_process(environment | variables):
        failed = {task_id: dubbing.wait(task_id, timeout=PATIENCE_SECONDS) for task_id in expected}
        letters = ear.all_of("task.dlq", len(expected) + len(sent))

    assert {task.status for task in failed.values()} == {"failed"}
    for letter in letters:
        original = letter["original_message"]
        key = str(original["payload"].get("source_video_key", "")).split("/")[1:2]
        sentence = sent.get(original["task_id"]) or expected[key[0]]
        assert re.search(sentence, letter["failure_reason"]), letter
        assert letter["attempt"] == 1
    assert len({letter["original_message"]["task_id"] for letter in letters}) == len(letters)
    assert sorted(dubbing.services.objects.list()) == sorted(f"videos/{task_id}/source.mp4" for task_id in expected)
    assert left_in(tmp_path / "work") == []
