"""Workers and ffmpeg are killed: at every step boundary, inside each step, and around the storing of its files."""

from __future__ import annotations

import signal
import threading
import uuid
from collections import Counter
from pathlib import Path

import psutil
import pytest

from stagepost_dubbing import Dubbing
from stagepost_dubbing.settings import STEPS
from tests.apps.dubbing.checks import left_in
from tests.apps.dubbing.conftest import MakeDubbing
from tests.apps.dubbing.s3 import S3Server
from tests.apps.dubbing.stand_ins import Control
from tests.apps.dubbing.workers import (
    PATIENCE_SECONDS,
    end_leases,
    facts,
    stand_still,
    wait_for_call,
    wait_until,
    work,
    worker_process,
)


@pytest.mark.parametrize("step", [pytest.param(one, marks=() if one == "tts" else pytest.mark.prove) for one in STEPS])
def test_whenever_a_worker_is_killed_the_video_is_the_same(
    make_dubbing: MakeDubbing,
    database_url: str,
    environment: dict[str, str],
    small_video: Path,
    undisturbed: object,
    step: str,
) -> None:
    variables = {"DUBBING_DATABASE_URL": database_url}
    dubbing = make_dubbing(**variables)
    task = dubbing.submit(small_video, to="pt")

    with worker_process(environment | variables):
        wait_until(lambda: any(row.step == step for row in dubbing.attempts(task.id)))
    end_leases(dubbing)
    task = work(dubbing, task.id)

    assert (task.status, task.error) == ("done", None)
    assert facts(dubbing, task.id) == undisturbed
    steps = {row.step: row.status for row in dubbing.attempts(task.id)}
    assert steps == dict.fromkeys(STEPS, "succeeded")


@pytest.mark.parametrize("call", ["asr", "translate-charlie", "tts-charlie"])
def test_a_worker_that_dies_in_a_step_is_followed_by_another(
    make_dubbing: MakeDubbing,
    database_url: str,
    environment: dict[str, str],
    small_video: Path,
    control: Control,
    call: str,
) -> None:
    variables = {"DUBBING_DATABASE_URL": database_url, "TRANSLATE_BATCH_SIZE": "1", "TTS_MAX_CONCURRENCY": "1"}
    dubbing = make_dubbing(**variables)
    task = dubbing.submit(small_video, to="pt")
    control.fail(call, "die-once")
    with worker_process(environment | variables) as process:
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    end_leases(dubbing)
    kept = [f"translate-{segment.src_text.split()[0]}" for segment in dubbing.segments(task.id) if segment.mt_text]
    kept += [f"tts-{segment.src_text.split()[0]}" for segment in dubbing.segments(task.id) if segment.tts_audio_key]

    task = work(dubbing, task.id)

    assert (task.status, task.error) == ("done", None)
    calls = Counter(control.calls)
    assert calls[call] == 2
    assert {calls[done] for done in kept} <= {1}, "what was stored is not done again"
    assert sum(calls.values()) - len(calls) == 1, "only what was under way is done again"
    [died] = [row for row in dubbing.attempts(task.id) if row.status != "succeeded"]
    assert (died.step, died.error) == (call.partition("-")[0], "its worker died; another attempt took over")


def test_a_worker_that_wakes_up_too_late_changes_nothing(
    make_dubbing: MakeDubbing, database_url: str, environment: dict[str, str], small_video: Path, control: Control
) -> None:
    variables = {"DUBBING_DATABASE_URL": database_url, "TTS_MAX_CONCURRENCY": "1"}
    dubbing = make_dubbing(**variables)
    task = dubbing.submit(small_video, to="pt")
    control.hold("tts-charlie")
    with worker_process(environment | variables) as sleeper:
        wait_for_call(control, "tts-charlie")
        stand_still(sleeper, dubbing)
        control.release("tts-charlie")
        assert work(dubbing, task.id).status == "done"
        before = (dubbing.attempts(task.id), dubbing.segments(task.id), facts(dubbing, task.id))

        sleeper.send_signal(signal.SIGCONT)
        sleeper.send_signal(signal.SIGTERM)
        assert sleeper.wait(PATIENCE_SECONDS) == 0

    assert (dubbing.attempts(task.id), dubbing.segments(task.id), facts(dubbing, task.id)) == before
    assert dubbing.task(task.id).status == "done"


def test_leftovers_of_dead_workers_are_removed(
    make_dubbing: MakeDubbing, environment: dict[str, str], small_video: Path, control: Control
) -> None:
    dubbing = make_dubbing()
    task = dubbing.submit(small_video, to="pt")
    control.fail("asr", "die-once")
    with worker_process(environment) as process:
        process.wait(PATIENCE_SECONDS)
    end_leases(dubbing)
    assert left_in(Path(environment["DUBBING_WORK_DIRECTORY"])) != []

    with worker_process(environment):
        assert dubbing.wait(task.id, timeout=PATIENCE_SECONDS).status == "done"
        wait_until(lambda: left_in(Path(environment["DUBBING_WORK_DIRECTORY"])) == [])


def test_a_worker_killed_while_ffmpeg_runs_leaves_neither_ffmpeg_nor_files(
    make_dubbing: MakeDubbing,
    environment: dict[str, str],
    small_video: Path,
    control: Control,
    governed_ffmpeg: str,
    undisturbed: object,
) -> None:
    dubbing = make_dubbing()
    task = dubbing.submit(small_video, to="pt")
    for file in ("source.wav", "final.mp4"):
        control.slow_ffmpeg(file)
        with worker_process(environment):
            ffmpeg = running_ffmpeg(dubbing, file)
        ffmpeg.wait(PATIENCE_SECONDS)
        control.hasten_ffmpeg()
        end_leases(dubbing)

    with worker_process(environment):
        assert dubbing.wait(task.id, timeout=PATIENCE_SECONDS).status == "done"
        wait_until(lambda: left_in(Path(dubbing.settings.work_directory)) == [])

    assert facts(dubbing, task.id) == undisturbed
    assert took_over(dubbing, task.id) == ["extract_audio", "mux_video"]
    assert set(Counter(control.calls).values()) == {1}


@pytest.mark.parametrize("is_stored", [False, True], ids=["before", "after"])
def test_a_worker_killed_around_the_storing_of_a_file_is_followed_by_another(
    make_dubbing: MakeDubbing,
    postgres_database: str,
    s3: S3Server,
    environment: dict[str, str],
    small_video: Path,
    control: Control,
    undisturbed: object,
    *,
    is_stored: bool,
) -> None:
    variables = {"DUBBING_DATABASE_URL": postgres_database, "DUBBING_OBJECTS_URL": s3.url(str(uuid.uuid4()))}
    dubbing = make_dubbing(**variables)
    task = dubbing.submit(small_video, to="pt")
    for key in (f"audios/{task.id}/source.wav", f"tts/{task.id}/dub.wav", f"outputs/{task.id}/final.mp4"):
        with s3.holding(key, is_stored=is_stored) as hold, worker_process(environment | variables):
            assert hold.reached.wait(PATIENCE_SECONDS)
        assert dubbing.services.objects.has(key) == is_stored
        end_leases(dubbing)

    assert work(dubbing, task.id).status == "done"

    assert facts(dubbing, task.id) == undisturbed
    assert took_over(dubbing, task.id) == ["extract_audio", "mux_video", "mux_video"]
    assert set(Counter(control.calls).values()) == {1}


def test_an_ffmpeg_that_is_killed_is_tried_again(
    make_dubbing: MakeDubbing, small_video: Path, control: Control, governed_ffmpeg: str, undisturbed: object
) -> None:
    dubbing = make_dubbing()
    task = dubbing.submit(small_video, to="pt")
    control.slow_ffmpeg("source.wav")

    def kill() -> None:
        for file, following in (("source.wav", "final.mp4"), ("final.mp4", None)):
            ffmpeg = running_ffmpeg(dubbing, file)
            control.hasten_ffmpeg()
            if following is not None:
                control.slow_ffmpeg(following)
            ffmpeg.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    assert work(dubbing, task.id).status == "done"
    killing.join()

    assert facts(dubbing, task.id) == undisturbed
    failed = [row for row in dubbing.attempts(task.id) if row.status != "succeeded"]
    assert [row.step for row in failed] == ["extract_audio", "mux_video"]
    assert {row.error for row in failed} == {"Retryable: ffmpeg was killed (exit code -9). Is memory short?"}
    assert list(Path(dubbing.settings.work_directory).iterdir()) == []


def running_ffmpeg(dubbing: Dubbing, file: str) -> psutil.Process:
    """The ffmpeg that is writing a file in the middle of a step, once there is something of it."""
    name = f"{file}.part"

    def parts() -> list[str]:
        return [left for left in left_in(Path(dubbing.settings.work_directory)) if Path(left).name == name]

    wait_until(lambda: len(parts()) == 1)
    [part] = (Path(dubbing.settings.work_directory, left) for left in parts())
    started = psutil.process_iter(["cmdline"])
    [found] = [process for process in started if f"file:{part}" in (process.info["cmdline"] or [])]
    return found


def took_over(dubbing: Dubbing, task_id: str) -> list[str]:
    """The steps of attempts whose workers died."""
    died = [row for row in dubbing.attempts(task_id) if row.status != "succeeded"]
    assert {row.error for row in died} == {"its worker died; another attempt took over"}
    return [row.step for row in died]
