"""Forged messages fail once and touch no task; what failed for good is announced at the broker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stagepost import JobState
from stagepost_dubbing import Dubbing
from tests.apps.dubbing.bad_videos import UPLOADS
from tests.apps.dubbing.broker import Ear
from tests.apps.dubbing.checks import files_in, left_in
from tests.apps.dubbing.conftest import MakeDubbing
from tests.apps.dubbing.stand_ins import Control
from tests.apps.dubbing.workers import PATIENCE_SECONDS, dubbed, wait_until, work_until_idle, worker_process

NO_TASK = "0b1c7f2e-6a0d-4f5e-9a52-1f0d5b6c7d8e"


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
REFUSES, BELONGS = "is refused: keys look like", "is refused: in a message for this task it must begin with"


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
    Forged("not an id", "extract_audio", extract("videos/seven/source.mp4"), "is not a task id"),
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
    Forged("no segments", "translate", translate([]), "has no segment_ids"),
    Forged("text for a list", "translate", translate("seg-0"), "Expected `array`, got `str`"),
    Forged("not an id", "tts", speak(task_id="x' or 1=1 --"), "is not a task id"),
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


def test_what_failed_for_good_is_announced_at_the_broker(
    make_dubbing: MakeDubbing,
    environment: dict[str, str],
    distributed: dict[str, str],
    ear: Ear,
    tmp_path: Path,
) -> None:
    dubbing = make_dubbing(**distributed)
    bad = [case for case in UPLOADS if case.name in {"empty.mp4", "without-sound.mp4", "half.mp4"}]
    expected = {}
    for case in bad:
        case.make(tmp_path / case.name)
        expected[dubbing.submit(tmp_path / case.name, to="pt").id] = case.sentence or ""
    forged = [one for one in FORGED if one.name in {"way out", "number for a key", "no task", "absolute"}]
    sent = {send(dubbing, one.step, filled(one.payload, own=NO_TASK)): re.escape(one.sentence) for one in forged}

    with worker_process(environment | distributed):
        failed = {task_id: dubbing.wait(task_id, timeout=PATIENCE_SECONDS) for task_id in expected}
        letters = ear.all_of("task.dlq", len(expected) + len(sent))
        wait_until(lambda: left_in(tmp_path / "work") == [])

    assert {task.status for task in failed.values()} == {"failed"}
    for letter in letters:
        original = letter["original_message"]
        key = str(original["payload"].get("source_video_key", "")).split("/")[1:2]
        sentence = sent.get(original["task_id"]) or expected[key[0]]
        assert re.search(sentence, letter["failure_reason"]), letter
        assert letter["attempt"] == 1
    assert len({letter["original_message"]["task_id"] for letter in letters}) == len(letters)
    assert sorted(dubbing.services.objects.list()) == sorted(f"videos/{task_id}/source.mp4" for task_id in expected)
