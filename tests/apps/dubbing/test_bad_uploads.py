"""Bad videos through the whole application: a clear error on the task, no second try, and nothing left behind.

What stays is the video as it was handed in, and what steps before the failure made: `retry` goes on from there.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psutil
import pytest

from stagepost import Job, JobState
from stagepost_dubbing import Dubbing, Task
from stagepost_dubbing.settings import STEPS
from tests.apps.dubbing.bad_videos import UPLOADS, Case, sources
from tests.apps.dubbing.checks import files_in, left_in
from tests.apps.dubbing.conftest import quick_variables
from tests.apps.dubbing.stand_ins import Control
from tests.apps.dubbing.workers import statuses, work_until_idle

BY_NAME = {"playlist-of-file.m3u8", "playlist-of-system-file.m3u8", "playlist-of-address.m3u8", "dash.mpd"}
"""What they are is told by names that they do not have in the store."""


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
        yield Uploads(dubbing, directory, tasks, dubbing.app.client.jobs(limit=1000))


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
    steps = [job for job in uploads.jobs if job.task in STEPS]
    assert {(job.task, job.state, job.attempt) for job in steps} >= {("extract_audio", JobState.FAILED, 1)}
    assert {job.state for job in steps} <= {JobState.FAILED, JobState.CANCELLED}
    assert {job.state for job in uploads.jobs} <= {JobState.FAILED, JobState.CANCELLED, JobState.COMPLETED}
