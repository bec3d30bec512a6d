"""What goes wrong: engines that fail, tasks that are cancelled, steps that take too long; nothing is lost."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pytest

from stagepost import JobState
from stagepost_dubbing import Dubbing, DubbingError, pipeline
from tests.apps.dubbing.conftest import MakeDubbing
from tests.apps.dubbing.stand_ins import Control
from tests.apps.dubbing.workers import dubbed, facts, statuses, wait_for_call, wait_until, work


def test_trouble_that_passes_is_tried_again(dubbing: Dubbing, small_video: Path, control: Control) -> None:
    control.fail("asr", "temporary-once")

    task = dubbed(dubbing, small_video)

    assert statuses(dubbing, task.id)[1:3] == [("asr", 1, "failed"), ("asr", 2, "succeeded")]
    assert dubbing.attempts(task.id)[1].error == "Retryable: asr is broken"
    assert (task.error, control.calls.count("asr")) == (None, 2)


def test_a_translator_that_is_away_for_a_while_delays_a_task(
    make_dubbing: MakeDubbing,
    small_video: Path,
    control: Control,
    undisturbed: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "PATIENCE", pipeline.LONG_PATIENCE)  # it may be noticed late that it is to come back
    dubbing = make_dubbing(TRANSLATE_BATCH_SIZE="1")
    task = dubbing.submit(small_video, to="pt")
    control.fail("translate-charlie", "temporary")

    def come_back() -> None:
        wait_until(lambda: ("translate", 1, "failed") in statuses(dubbing, task.id))
        control.mend("translate-charlie")

    coming = threading.Thread(target=come_back)
    coming.start()
    assert work(dubbing, task.id).status == "done"
    coming.join()

    assert facts(dubbing, task.id) == undisturbed
    assert {row.status for row in dubbing.attempts(task.id) if row.step == "translate"} == {"failed", "succeeded"}
    calls = Counter(control.calls)
    assert {name for name, number in calls.items() if number > 1} == {"translate-charlie"}


def test_trouble_that_does_not_pass_fails_the_task(dubbing: Dubbing, small_video: Path, control: Control) -> None:
    control.fail("asr", "permanent")
    task = work(dubbing, dubbing.submit(small_video, to="pt").id)
    assert (task.status, task.error) == ("failed", "asr: Permanent: asr is broken")
    assert control.calls == ["asr"]
    [dead] = dubbing.app.client.jobs(states=[JobState.FAILED])
    assert dead.task == "asr"

    control.mend("asr")
    assert dubbing.retry(task.id).status == "queued"
    task = work(dubbing, task.id)

    assert (task.status, task.error) == ("done", None)
    assert statuses(dubbing, task.id)[:3] == [
        ("extract_audio", 1, "succeeded"), ("asr", 1, "failed"), ("asr", 2, "succeeded"),
    ]  # fmt: skip
    with pytest.raises(DubbingError, match="nothing to retry"):
        dubbing.retry(task.id)


def test_what_was_translated_before_a_failure_is_kept(
    make_dubbing: MakeDubbing, database_url: str, small_video: Path, control: Control
) -> None:
    dubbing = make_dubbing(DUBBING_DATABASE_URL=database_url, TRANSLATE_BATCH_SIZE="2")
    control.fail("translate-charlie", "permanent")

    task = work(dubbing, dubbing.submit(small_video, to="pt").id)
    assert (task.status, [bool(s.mt_text) for s in dubbing.segments(task.id)]) == (
        "failed",
        [True, True, False, True, False],
    )
    control.mend("translate-charlie")
    dubbing.retry(task.id)
    assert work(dubbing, task.id).status == "done"

    calls = Counter(call for call in control.calls if call.startswith("translate"))
    assert (calls["translate-alpha"], calls["translate-bravo"], calls["translate-echo"]) == (1, 1, 1)


def test_a_segment_that_cannot_be_spoken_is_compensated(dubbing: Dubbing, small_video: Path, control: Control) -> None:
    control.fail("tts-charlie", "permanent")

    task = work(dubbing, dubbing.submit(small_video, to="pt").id)

    assert task.status == "failed"
    assert "1 segments could not be spoken; the first is segment 2: tts-charlie is broken" in (task.error or "")
    assert [bool(s.tts_audio_key) for s in dubbing.segments(task.id)] == [True, True, False, True, True]
    [entry] = dubbing.app.client.jobs(task="tts_compensation")
    payload = dict(entry.arguments)
    assert payload.pop("created_at").endswith("Z")
    assert payload == {
        "task_id": task.id,
        "segment_idx": 2,
        "error": "tts-charlie is broken",
        "routing_key": "task.tts",
    }
    assert entry.queue == "tts_compensation"

    assert dubbing.requeue_speech(limit=100) == [task.id]
    assert dubbing.requeue_speech(limit=100) == []
    assert work(dubbing, task.id).status == "failed"
    control.mend("tts-charlie")
    assert dubbing.requeue_speech(limit=100) == [task.id]
    assert work(dubbing, task.id).status == "done"

    calls = Counter(call for call in control.calls if call.startswith("tts"))
    assert calls == {"tts-alpha": 1, "tts-bravo": 1, "tts-charlie": 3, "tts-delta": 1, "tts-echo": 1}
    assert [s.tts_error for s in dubbing.segments(task.id)] == [None] * 5


def test_the_schedule_gives_up_on_a_task_at_some_time(
    make_dubbing: MakeDubbing, database_url: str, small_video: Path, control: Control
) -> None:
    dubbing = make_dubbing(DUBBING_DATABASE_URL=database_url, DUBBING_MOST_REQUEUES="1")
    control.fail("tts-echo", "permanent")
    task = work(dubbing, dubbing.submit(small_video, to="pt").id)
    again = dubbing.app.registry.get("tts_requeue")
    assert "tts_requeue" in dubbing.app.declared_schedules

    sent = []
    for _ in range(2):
        job = dubbing.app.client.enqueue(again.job(limit=100))
        work(dubbing, task.id)
        sent.append(dubbing.app.client.result(job.id, timeout=60))
        work(dubbing, task.id)

    assert sent == [1, 0]
    assert dubbing.task(task.id).status == "failed"
    assert dubbing.requeue_speech(limit=100) == [task.id]


def test_an_edited_text_mends_a_segment_that_cannot_be_spoken(
    dubbing: Dubbing, small_video: Path, control: Control
) -> None:
    control.fail("tts-charlie", "permanent")
    task = work(dubbing, dubbing.submit(small_video, to="pt").id)

    dubbing.edit(task.id, 2, "QUEBEC")
    task = work(dubbing, task.id)

    assert (task.status, task.revision, task.error) == ("done", 2, None)


@pytest.mark.parametrize("call", ["asr", "tts-charlie"])
def test_a_cancelled_task_stops_and_can_go_on(dubbing: Dubbing, small_video: Path, control: Control, call: str) -> None:
    control.hold(call)
    task = dubbing.submit(small_video, to="pt")

    def cancel() -> None:
        wait_for_call(control, call)
        dubbing.cancel(task.id)
        if call != "asr":  # this engine cannot be interrupted
            control.release(call)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    ended = work(dubbing, task.id)
    canceller.join()
    assert (ended.status, ended.error) == ("cancelled", "it was cancelled")

    control.release(call)
    dubbing.retry(task.id)
    assert work(dubbing, task.id).status == "done"


def test_a_task_that_runs_cannot_be_edited_or_retried(dubbing: Dubbing, small_video: Path) -> None:
    task = dubbing.submit(small_video, to="pt")

    for name, arguments in (("retry", ()), ("edit", (0, "no"))):
        with pytest.raises(DubbingError, match=r"is queued\. Wait until it has ended, or cancel it first"):
            getattr(dubbing, name)(task.id, *arguments)


def test_a_task_that_is_done_can_be_edited_though_nobody_has_concluded_its_run(
    dubbing: Dubbing, small_video: Path, control: Control
) -> None:
    """As it is when the worker dies right after the last step."""
    task = dubbed(dubbing, small_video)
    spoken = control.calls
    with dubbing.services.database.transaction() as tx:
        tx.run_text("update stagepost_run set state = 'running', ended_at = null")

    with pytest.raises(DubbingError, match="is done: there is nothing to retry"):
        dubbing.retry(task.id)
    dubbing.edit(task.id, 2, "ZULU nine")

    assert work(dubbing, task.id).status == "done"
    assert control.calls == [*spoken, "tts-zulu"]


def test_a_step_that_takes_too_long_ends(
    make_dubbing: MakeDubbing, small_video: Path, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "GRACE_SECONDS", 600)  # the step itself has to notice
    dubbing = make_dubbing(TIMEOUT_ASR_SECONDS="0.2")
    control.hold("asr")

    task = work(dubbing, dubbing.submit(small_video, to="pt").id)

    assert (task.status, task.error) == ("failed", "asr: TimeoutError: step asr took longer than its timeout of 0.2 s")
    assert [row.status for row in dubbing.attempts(task.id)] == ["succeeded", "failed", "failed", "failed"]


def test_a_recognition_that_was_stored_is_not_made_again(dubbing: Dubbing, small_video: Path, control: Control) -> None:
    task = dubbing.submit(small_video, to="pt")
    stored = {"language": "en", "segments": [{"start": 1.0, "end": 2.0, "text": "from before the crash"}]}
    dubbing.services.objects.create(f"asr/{task.id}/asr.json", json.dumps(stored).encode())

    assert work(dubbing, task.id).status == "done"

    assert "asr" not in control.calls
    assert [segment.src_text for segment in dubbing.segments(task.id)] == ["from before the crash"]


def test_a_video_that_is_none_is_a_clear_error_on_the_task(dubbing: Dubbing, tmp_path: Path) -> None:
    for name, content in (("empty.mp4", b""), ("text.mp4", b"not a video " * 100)):
        video = tmp_path / name
        video.write_bytes(content)
        task = work(dubbing, dubbing.submit(video, to="pt").id)
        assert task.status == "failed"
        assert (task.error or "").startswith("extract_audio: Permanent: ")
        assert dubbing.services.objects.list(f"audios/{task.id}") == []
    assert list(Path(dubbing.settings.work_directory).iterdir()) == []


def test_a_worker_waits_while_another_job_is_at_the_same_step(
    dubbing: Dubbing, small_video: Path, control: Control
) -> None:
    control.hold("asr")
    task = dubbing.submit(small_video, to="pt")
    asr = dubbing.app.registry.get("asr")

    def duplicate() -> None:
        wait_for_call(control, "asr")
        copy = asr.job(audio_key=f"audios/{task.id}/source.wav", language="en", output_key=f"asr/{task.id}/asr.json")
        handle = dubbing.app.client.enqueue(copy)
        wait_until(lambda: dubbing.app.client.job(handle.id).state is JobState.SCHEDULED)
        control.release("asr")

    other = threading.Thread(target=duplicate)
    other.start()
    task = work(dubbing, task.id)
    other.join()

    assert task.status == "done"
    assert control.calls.count("asr") == 1
    assert [row for row in statuses(dubbing, task.id) if row[0] == "asr"] == [("asr", 1, "succeeded")]
