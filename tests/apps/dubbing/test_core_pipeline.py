"""A task goes through its five steps, and what happens twice has an effect once."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from stagepost import Permanent
from stagepost.errors import LeaseLost
from stagepost_dubbing import Dubbing, DubbingError, DubOptions
from stagepost_dubbing.settings import STEPS
from stagepost_dubbing.steps.frame import Attempt
from tests.apps.dubbing.conftest import MakeDubbing
from tests.apps.dubbing.stand_ins import SENTENCES, Control
from tests.apps.dubbing.workers import dubbed, statuses, work, work_until_idle

ONCE = [(step, 1, "succeeded") for step in STEPS]


def test_a_video_goes_through_five_steps(dubbing: Dubbing, small_video: Path, control: Control) -> None:
    task = dubbed(dubbing, small_video)

    assert statuses(dubbing, task.id) == ONCE
    assert [step.status for step in dubbing.view(task.id).steps] == ["succeeded"] * 5
    assert [(s.segment_id, s.src_text, s.mt_text) for s in dubbing.segments(task.id)] == [
        (f"seg-{idx}", text, text.upper()) for idx, text in enumerate(SENTENCES)
    ]
    assert len(control.calls) == 1 + 5 + 5
    expected = {f"videos/{task.id}/source.mp4", f"audios/{task.id}/source.wav", f"asr/{task.id}/asr.json"}
    expected |= {f"tts/{task.id}/dub.wav", f"tts/{task.id}/dub.json", f"outputs/{task.id}/final.mp4"}
    expected |= {f"outputs/{task.id}/{which}.{kind}" for which in ("source", "target") for kind in ("srt", "vtt")}
    expected |= {segment.tts_audio_key or "" for segment in dubbing.segments(task.id)}
    assert set(dubbing.services.objects.list()) == expected
    assert list(Path(dubbing.settings.work_directory).iterdir()) == []


def test_messages_are_those_of_the_document(dubbing: Dubbing, small_video: Path) -> None:
    task = dubbed(dubbing, small_video)

    jobs = {job.task: (job.queue, job.arguments) for job in dubbing.app.client.jobs(limit=100)}
    assert {name: queue for name, (queue, _) in jobs.items() if name in STEPS} == {step: step for step in STEPS}
    video, audio = f"videos/{task.id}/source.mp4", f"audios/{task.id}/source.wav"
    assert jobs["extract_audio"][1] == {"source_video_key": video, "output_audio_key": audio}
    assert jobs["asr"][1] == {"audio_key": audio, "language": "en", "output_key": f"asr/{task.id}/asr.json"}
    assert jobs["translate"][1] == {
        "task_id": task.id,
        "segment_ids": ["seg-0", "seg-1", "seg-2", "seg-3", "seg-4"],
        "source_language": "en",
        "target_language": "pt",
        "batch_size": 20,
    }
    assert jobs["tts"][1] == {
        "task_id": task.id,
        "batch_size": 20,
        "max_concurrency": 4,
        "max_retries": 1,
        "retry_delay_sec": 0.01,
        "speaker_id": "default",
    }
    assert jobs["mux_video"][1] == {
        "task_id": task.id,
        "source_video_key": video,
        "tts_audio_key": f"tts/{task.id}/dub.wav",
        "output_video_key": f"outputs/{task.id}/final.mp4",
    }


def test_many_segments_are_several_translate_messages(
    make_dubbing: MakeDubbing, database_url: str, small_video: Path
) -> None:
    dubbing = make_dubbing(
        DUBBING_DATABASE_URL=database_url, DUBBING_TRANSLATE_MESSAGE_SIZE="2", TRANSLATE_BATCH_SIZE="1"
    )

    task = dubbed(dubbing, small_video)

    parts = [(row.part, row.status) for row in dubbing.attempts(task.id) if row.step == "translate"]
    assert parts == [("seg-0", "succeeded"), ("seg-2", "succeeded"), ("seg-4", "succeeded")]
    assert all(segment.mt_text for segment in dubbing.segments(task.id))


def test_the_same_again_is_the_same_task(dubbing: Dubbing, small_video: Path, control: Control) -> None:
    task = dubbed(dubbing, small_video)
    calls = control.calls

    again = dubbing.submit(small_video, to="pt")

    assert (again.id, again.status, control.calls) == (task.id, "done", calls)
    assert dubbing.submit(small_video, to="pt", options=DubOptions(keep_original=True)).id != task.id


def test_an_id_belongs_to_one_video(dubbing: Dubbing, small_video: Path, tmp_path: Path) -> None:
    task_id = str(UUID(int=7))
    dubbing.submit(small_video, to="pt", id=task_id)
    other = tmp_path / "other.mp4"
    other.write_bytes(b"other")

    with pytest.raises(DubbingError, match="with another video"):
        dubbing.submit(other, to="pt", id=task_id)
    with pytest.raises(DubbingError, match="with another target language"):
        dubbing.submit(small_video, to="es", id=task_id)
    with pytest.raises(Permanent, match="must be a UUID"):
        dubbing.submit(small_video, to="pt", id="../../etc")


class OldJob:
    """A job whose worker was paused, and has not heard yet that it was taken over."""

    id, attempt = "01a1e343-c024-7000-8000-000000000000", 1

    def raise_if_cancelled(self) -> None:
        pass


def test_an_attempt_that_was_paused_does_not_overwrite_a_newer_video(
    dubbing: Dubbing, small_video: Path, tmp_path: Path
) -> None:
    task = dubbed(dubbing, small_video)
    for text in ("ZULU nine", "ZULU ten"):
        dubbing.edit(task.id, 2, text)
        assert work(dubbing, task.id).status == "done"
    video = dubbing.services.objects.read(task.output_video_key)
    second = next(row for row in dubbing.attempts(task.id) if (row.step, row.attempt) == ("mux_video", 2))
    job: Any = OldJob()
    paused = Attempt(dubbing.services, job, task, msgspec.structs.replace(second, status="running"), tmp_path, 60)

    with pytest.raises(LeaseLost):
        paused.store(task.output_video_key, b"the video of before")

    assert dubbing.services.objects.read(task.output_video_key) == video


def test_an_edited_segment_alone_is_spoken_anew(dubbing: Dubbing, small_video: Path, control: Control) -> None:
    task = dubbed(dubbing, small_video)
    before, old = len(control.calls), dubbing.segments(task.id)
    track = dubbing.services.objects.read(f"tts/{task.id}/dub.wav")

    edited = dubbing.edit(task.id, 2, "ZULU nine")
    assert (edited.status, edited.revision) == ("queued", 2)
    assert work(dubbing, task.id).status == "done"

    assert control.calls[before:] == ["tts-zulu"]
    new = dubbing.segments(task.id)
    assert [a.tts_audio_key == b.tts_audio_key for a, b in zip(old, new, strict=True)] == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert statuses(dubbing, task.id) == [
        ("extract_audio", 1, "succeeded"), ("asr", 1, "succeeded"), ("translate", 1, "succeeded"),
        ("tts", 1, "stale"), ("tts", 2, "succeeded"), ("mux_video", 1, "stale"), ("mux_video", 2, "succeeded"),
    ]  # fmt: skip
    assert dubbing.services.objects.read(f"tts/{task.id}/dub.wav") != track
    subtitles = dubbing.services.objects.read(f"outputs/{task.id}/target.srt").decode()
    assert "ZULU nine" in subtitles
    assert "CHARLIE" not in subtitles


def test_a_segment_that_is_not_there_cannot_be_edited(dubbing: Dubbing, small_video: Path) -> None:
    task = dubbed(dubbing, small_video)

    with pytest.raises(DubbingError, match="numbered from 0 to 4"):
        dubbing.edit(task.id, 5, "no")
    assert dubbing.task(task.id).status == "done"


def test_messages_that_come_twice_are_skipped(dubbing: Dubbing, small_video: Path, control: Control) -> None:
    task = dubbed(dubbing, small_video)
    calls, objects = control.calls, dubbing.services.objects.list()
    first = {job.task: job for job in dubbing.app.client.jobs(limit=100) if job.task in STEPS}
    assert len(first) == len(STEPS)

    again = {
        step: dubbing.app.client.enqueue(dubbing.app.registry.get(step).job(**job.arguments))
        for step, job in first.items()
    }
    work_until_idle(dubbing)

    for step, handle in again.items():
        job = dubbing.app.client.job(handle.id)
        assert (step, job.state, job.result) == (step, "completed", first[step].result)
    assert (control.calls, dubbing.services.objects.list()) == (calls, objects)
    assert statuses(dubbing, task.id) == ONCE


def test_a_message_that_comes_too_early_waits(dubbing: Dubbing, small_video: Path, control: Control) -> None:
    task = dubbing.submit(small_video, to="pt")
    mux = dubbing.app.registry.get("mux_video")
    early = dubbing.app.client.enqueue(
        mux.job(
            task_id=task.id,
            source_video_key=task.source_video_key,
            tts_audio_key=f"tts/{task.id}/dub.wav",
            output_video_key=task.output_video_key,
        )
    )

    assert work(dubbing, task.id).status == "done"

    [failure, *_] = dubbing.app.client.failures(early.id)
    assert "step tts has not succeeded, so mux_video cannot begin" in failure.error
    assert statuses(dubbing, task.id) == ONCE
