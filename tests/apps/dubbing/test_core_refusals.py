"""An object store that refuses, at every file that steps write or read, once, for a while or for good; or loses one."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import obstore
import pytest

from stagepost import JobState
from stagepost_dubbing import Dubbing, objects
from stagepost_dubbing.settings import STEPS
from tests.apps.dubbing.checks import left_in
from tests.apps.dubbing.conftest import MakeDubbing
from tests.apps.dubbing.gate import READS, WRITES
from tests.apps.dubbing.s3 import S3Server
from tests.apps.dubbing.stand_ins import Control
from tests.apps.dubbing.workers import facts, statuses, wait_for_call, wait_until, work, work_until_idle

WRITTEN = [
    ("extract_audio", "audios/{id}/source.wav"),
    ("asr", "asr/{id}/asr.json"),
    ("tts", "tts/{id}/00002-"),
    ("mux_video", "tts/{id}/dub.wav"),
    ("mux_video", "tts/{id}/dub.json"),
    ("mux_video", "outputs/{id}/target.srt"),
    ("mux_video", "outputs/{id}/final.mp4"),
]
READ = [
    ("extract_audio", "videos/{id}/source.mp4"),
    ("asr", "audios/{id}/source.wav"),
    ("asr", "asr/{id}/asr.json"),
    ("mux_video", "tts/{id}/00002-"),
    ("mux_video", "tts/{id}/dub.json"),
]


@pytest.fixture
def dubbing(
    make_dubbing: MakeDubbing, postgres_database: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Dubbing:
    """Where a request that is refused is not made again at once, so that the step has to be."""
    monkeypatch.setattr(objects, "RETRY", {"max_retries": 0})
    url = s3.url(str(uuid.uuid4()))
    return make_dubbing(DUBBING_DATABASE_URL=postgres_database, DUBBING_OBJECTS_URL=url, TTS_MAX_RETRIES="0")


def submitted(dubbing: Dubbing, video: Path, number: int) -> list[str]:
    return [dubbing.submit(video, to="pt", id=str(uuid.uuid4())).id for _ in range(number)]


def failures(dubbing: Dubbing, task_id: str) -> list[tuple[str, str]]:
    """The attempts that failed, and why."""
    return [(row.step, row.error or "") for row in dubbing.attempts(task_id) if row.status == "failed"]


@pytest.mark.parametrize(("methods", "points"), [(WRITES, WRITTEN), (READS, READ)], ids=["writes", "reads"])
@pytest.mark.prove
def test_what_is_refused_once_is_done_at_the_next_attempt(
    dubbing: Dubbing,
    s3: S3Server,
    small_video: Path,
    control: Control,
    undisturbed: object,
    methods: Collection[str],
    points: Sequence[tuple[str, str]],
) -> None:
    tasks = submitted(dubbing, small_video, len(points))

    with ExitStack() as stack:
        for task_id, (_, key) in zip(tasks, points, strict=True):
            stack.enter_context(s3.refusing(methods, key.format(id=task_id), most=1))
        for task_id in tasks:
            assert work(dubbing, task_id).status == "done"

    for task_id, (step, key) in zip(tasks, points, strict=True):
        [(failed, error)] = failures(dubbing, task_id)
        assert (failed, key.format(id=task_id) in error) == (step, True)
        assert "503 Service Unavailable" in error
        assert facts(dubbing, task_id) == undisturbed
    calls = Counter(control.calls)
    lost = {"asr", "tts-charlie"} if methods is WRITES else set()  # what was made, and could not be kept
    assert calls == {name: len(tasks) + (name in lost) for name in calls}
    assert list(Path(dubbing.settings.work_directory).iterdir()) == []


@pytest.mark.prove
def test_what_may_not_be_written_fails_the_task_until_it_may(
    dubbing: Dubbing, s3: S3Server, small_video: Path, undisturbed: object
) -> None:
    points = [WRITTEN[0], WRITTEN[2], WRITTEN[6]]
    tasks = submitted(dubbing, small_video, len(points))

    with ExitStack() as stack:
        for task_id, (_, key) in zip(tasks, points, strict=True):
            stack.enter_context(s3.refusing(WRITES, key.format(id=task_id), status=403))
        for task_id, (step, key) in zip(tasks, points, strict=True):
            task = work(dubbing, task_id)
            assert (task.status, [failed for failed, _ in failures(dubbing, task_id)]) == ("failed", [step] * 3)
            said = f"object store refuses to write {key.format(id=task_id)}"
            reason = "403 Forbidden, AccessDenied: Refused. Check its credentials and permissions."
            assert said in (task.error or "")
            assert reason in (task.error or "")
            assert len(task.error or "") < 400
    assert {job.task for job in dubbing.app.client.jobs(states=[JobState.DEAD_LETTER])} == {step for step, _ in points}

    for task_id in tasks:
        dubbing.retry(task_id)
        assert work(dubbing, task_id).status == "done"
        assert facts(dubbing, task_id) == undisturbed


def test_a_store_that_refuses_writes_for_a_while_delays_a_task(
    make_dubbing: MakeDubbing, small_video: Path, control: Control, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(objects.RETRY, "retry_timeout", timedelta(minutes=4))  # longer than ten refusals ever take
    dubbing = make_dubbing(DUBBING_OBJECTS_URL=s3.url(str(uuid.uuid4())))
    task = dubbing.submit(small_video, to="pt")
    control.hold("asr")

    def refuse() -> None:
        wait_for_call(control, "asr")
        with s3.refusing(WRITES, most=10) as refusal:
            control.release("asr")
            wait_until(lambda: len(refusal.paths) >= 10)

    refusing = threading.Thread(target=refuse)
    refusing.start()
    assert work(dubbing, task.id).status == "done"
    refusing.join()

    assert [row.attempt for row in dubbing.attempts(task.id)] == [1] * 5
    assert set(Counter(control.calls).values()) == {1}


def test_a_speech_that_could_not_be_stored_is_not_spoken_again(
    make_dubbing: MakeDubbing, small_video: Path, control: Control, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "RETRY", {"max_retries": 0})
    dubbing = make_dubbing(DUBBING_OBJECTS_URL=s3.url(str(uuid.uuid4())), TTS_MAX_RETRIES="2")
    task = dubbing.submit(small_video, to="pt")

    with s3.refusing(WRITES, f"tts/{task.id}/00002-", most=2) as refusal:
        assert work(dubbing, task.id).status == "done"

    assert (len(refusal.paths), control.calls.count("tts-charlie")) == (2, 1)


@pytest.fixture(params=["files", "s3"])
def kept_in(request: pytest.FixtureRequest) -> dict[str, str]:
    """Objects in a directory, and in S3."""
    if request.param == "files":
        return {}
    server: S3Server = request.getfixturevalue("s3")
    return {"DUBBING_OBJECTS_URL": server.url(str(uuid.uuid4()))}


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
    stored = dubbing.services.objects
    wanted = key.replace("{own}", task.id)
    deleted = next(found for found in stored.list() if found.startswith(wanted))
    obstore.delete(stored._store, deleted)
    kept = stored.list()

    work_until_idle(dubbing)

    task = dubbing.task(task.id)
    assert (task.status, task.error) == (
        "failed",
        f"{step}: Permanent: object {deleted} is missing: it was deleted or never stored.",
    )
    assert statuses(dubbing, task.id) == [*((name, 1, "succeeded") for name in before), (step, 1, "failed")]
    assert stored.list() == kept
    assert left_in(tmp_path / "work") == []
