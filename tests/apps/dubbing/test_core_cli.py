"""The command line: what it prints, as JSON too, and what it says when something is wrong."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stagepost_dubbing.cli.main import cli
from tests.apps.dubbing.stand_ins import Control
from tests.apps.dubbing.workers import PATIENCE_SECONDS, worker_process

NO_TASK = "0b1c7f2e-6a0d-4f5e-9a52-1f0d5b6c7d8e"


class Shell:
    """Runs commands in a process with these variables."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *arguments: object, code: int = 0) -> Result:
        done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        assert done.exit_code == code, done.output
        return done

    def json(self, *arguments: object, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)


@pytest.fixture
def shell(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


def test_dub_writes_a_video_and_says_where(shell: Shell, small_video: Path) -> None:
    done = shell("dub", small_video, "--to", "pt", "--duck", "-18", "--keep-original")

    assert (shell.directory / "small.pt.mp4").stat().st_size > 1000
    assert done.stdout.splitlines()[-1].endswith("is done: small.pt.mp4")
    assert "CHARLIE THREE" in done.stdout
    assert "mux_video      succeeded" in done.stderr


def test_what_is_known_of_a_task_can_be_asked_for(shell: Shell, small_video: Path, control: Control) -> None:
    answer = shell.json("dub", small_video, "--to", "pt", "-o", "out.mp4")
    task_id = answer["task"]["id"]
    assert answer["output"] == "out.mp4"

    assert shell.json("status", task_id)["task"]["status"] == "done"
    assert "tts            succeeded  5 of 5 segments" in shell("status", task_id).stdout
    assert shell.json("watch", task_id)["task"]["id"] == task_id
    assert [task["id"] for task in shell.json("list", "--status", "done")] == [task_id]
    assert shell.json("list", "--status", "failed") == []
    assert shell.json("segments", task_id)[0]["mt_text"] == "ALPHA ONE"
    assert "ALPHA ONE" in shell("segments", task_id).stdout
    assert shell.json("save", task_id, "again.mp4") == {"output": "again.mp4"}
    assert Path("again.mp4").read_bytes() == Path("out.mp4").read_bytes()
    calls = control.calls
    assert shell.json("dub", small_video, "--to", "pt", "-o", "out.mp4") == answer
    assert control.calls == calls


def test_an_edit_is_done_by_the_next_worker(shell: Shell, small_video: Path) -> None:
    task_id = shell.json("dub", small_video, "--to", "pt")["task"]["id"]

    assert "(revision 2)" in shell("edit", task_id, 1, "--text", "YANKEE").stdout
    shell("worker", "--until-idle", "--log-level", "error")

    assert shell.json("status", task_id)["task"]["status"] == "done"
    assert shell.json("segments", task_id)[1]["mt_text"] == "YANKEE"


def test_a_task_that_failed_says_how_to_go_on(shell: Shell, small_video: Path, control: Control) -> None:
    control.fail("tts-bravo", "permanent")

    failed = shell("dub", small_video, "--to", "pt", code=1)
    assert "tts-bravo is broken" in failed.stdout
    assert "To continue: stagepost-dubbing retry" in failed.stdout
    [task] = shell.json("list")
    shell("watch", task["id"], code=1)

    control.mend("tts-bravo")
    assert shell.json("tts-requeue", "--limit", 100) == [task["id"]]
    assert "nothing to send again" in shell("tts-requeue").stdout
    assert shell.json("dub", small_video, "--to", "pt")["task"]["status"] == "done"


def test_dub_says_what_it_waits_for_after_another_was_killed(
    shell: Shell, environment: dict[str, str], small_video: Path, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEPOST_LEASE_SECONDS", "3")
    shell("dub", small_video, "--to", "pt", "--detach")
    control.fail("asr", "die-once")
    with worker_process(environment | {"STAGEPOST_LEASE_SECONDS": "3"}) as process:
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL

    done = shell("dub", small_video, "--to", "pt")

    told = re.search(r"^asr +is held by another process\. If that was killed, .* within (\d+) s\.$", done.stderr, re.M)
    assert told, done.stderr
    assert 15 <= int(told[1]) <= 15 + 3
    assert "is held by another process" not in shell("dub", small_video, "--to", "pt").stderr


def test_a_task_can_wait_for_workers_and_be_cancelled(shell: Shell, small_video: Path) -> None:
    detached = shell.json("dub", small_video, "--to", "pt", "--detach")
    task_id = detached["task"]["id"]
    assert detached["task"]["status"] == "queued"

    shell("cancel", task_id)
    shell("worker", "--until-idle", "--log-level", "error")
    assert shell.json("status", task_id)["task"]["status"] == "cancelled"

    shell("retry", task_id)
    shell("worker", "--until-idle", "--log-level", "error")
    assert shell.json("status", task_id)["task"]["status"] == "done"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["dub", "no-such.mp4", "--to", "pt"], 1, "no-such.mp4 cannot be read: No such file"),
        (["dub", ".", "--to", "pt"], 1, "cannot be read: Is a directory"),
        (["dub", "VIDEO", "--to", "../x"], 1, "is not a language code"),
        (["dub", "VIDEO", "--to", "pt", "--id", "../x"], 1, "it must be a UUID"),
        (["status", NO_TASK], 1, "Run `stagepost-dubbing list` to see existing tasks"),
        (["status", "7"], 1, "it must be a UUID"),
        (["save", NO_TASK, "x.mp4"], 1, "there is no task"),
        (["tts-requeue", "--limit", "0"], 2, "0 is not in the range"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    shell: Shell, small_video: Path, arguments: list[str], code: int, message: str
) -> None:
    done = shell(*[str(small_video) if argument == "VIDEO" else argument for argument in arguments], code=code)

    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.output


def test_an_engine_that_is_not_there_is_said_before_work_begins(
    shell: Shell, small_video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBBING_VOICE", "opera")

    done = shell("worker", "--until-idle", code=2)

    assert "there is no voice 'opera'; choose one of" in done.stderr
    assert "there is no voice 'opera'" in shell("dub", small_video, "--to", "pt", code=2).stderr
