"""`stagepost worker` and `stagepost dev` as processes: signals, several processes, a parent that dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.acceptance.cli.command_line import CommandLine
from tests.services.processes import wait_until

LIMIT = 120.0
PATIENT = ("--shutdown-timeout", str(10 * LIMIT))
"""Lets jobs go on for as long as a test wants."""


@pytest.fixture
def start(shop: CommandLine) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts commands, and ends what is left of them."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        started.append(shop.start(*arguments, **options))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()  # not read to its end: a worker that was left behind would keep it open


def workers_of(shop: CommandLine) -> list[int]:
    """The processes of the workers that said hello."""
    return [worker["pid"] for worker in shop.json("workers", "list")["workers"]]


def wait_for_workers(shop: CommandLine, number: int, *, besides: int = 0) -> list[int]:
    """Wait until so many workers run; returns their processes."""
    wait_until(
        lambda: len([pid for pid in workers_of(shop) if pid != besides]) >= number, f"{number} workers", seconds=LIMIT
    )
    return [pid for pid in workers_of(shop) if pid != besides]


def test_a_worker_asked_to_stop_finishes_its_job_and_exits_with_0(
    shop: CommandLine, start: Callable[..., subprocess.Popen[str]]
) -> None:
    job_id = shop.enqueue("wait", '"file"')
    process = start("worker", "--queues", "slow,default", "--concurrency", "2", *PATIENT)
    wait_until(lambda: shop.json("jobs", "show", job_id)["state"] == "running", "the job runs", seconds=LIMIT)

    process.send_signal(signal.SIGTERM)
    _read_until(process, "stopping: 1 jobs are running")
    (shop.folder / "file").touch()
    said, _ = process.communicate(timeout=LIMIT)

    assert process.returncode == 0, said
    assert shop.json("jobs", "show", job_id)["state"] == "completed"


def test_a_second_signal_releases_the_job_at_once(
    shop: CommandLine, start: Callable[..., subprocess.Popen[str]]
) -> None:
    job_id = shop.enqueue("wait", '"a file that never comes"')
    process = start("worker", *PATIENT)
    wait_until(lambda: shop.json("jobs", "show", job_id)["state"] == "running", "the job runs", seconds=LIMIT)

    process.send_signal(signal.SIGINT)
    _read_until(process, "stopping: 1 jobs are running")
    process.send_signal(signal.SIGINT)

    process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    shown = shop.json("jobs", "show", job_id)
    assert (shown["state"], shown["failures"]) == ("queued", 0)


def test_a_killed_process_is_replaced_and_all_stop_on_request(
    shop: CommandLine, start: Callable[..., subprocess.Popen[str]]
) -> None:
    supervisor = start("worker", "--processes", "2")
    first, second = wait_for_workers(shop, 2)

    os.kill(first, signal.SIGKILL)
    replaced = wait_for_workers(shop, 2, besides=first)
    job_id = shop.enqueue("mail", '"ada"')
    wait_until(lambda: shop.json("jobs", "show", job_id)["state"] == "completed", "the job is done", seconds=LIMIT)
    supervisor.send_signal(signal.SIGTERM)
    said, _ = supervisor.communicate(timeout=LIMIT)

    assert second in replaced
    assert supervisor.returncode == 0, said
    assert "killed by SIGKILL" in said
    assert not [pid for pid in replaced if psutil.pid_exists(pid)]


def test_ctrl_c_in_a_terminal_lets_jobs_finish(shop: CommandLine, start: Callable[..., subprocess.Popen[str]]) -> None:
    job_id = shop.enqueue("wait", '"file"')
    supervisor = start("worker", "--processes", "1", *PATIENT, start_new_session=True)
    wait_until(lambda: shop.json("jobs", "show", job_id)["state"] == "running", "the job runs", seconds=LIMIT)

    os.killpg(supervisor.pid, signal.SIGINT)  # a terminal tells every process in the foreground
    _read_until(supervisor, "stopping: 1 jobs are running")
    (shop.folder / "file").touch()
    supervisor.communicate(timeout=LIMIT)

    assert supervisor.returncode == 0
    assert shop.json("jobs", "show", job_id)["state"] == "completed"


def test_a_killed_supervisor_leaves_no_worker_behind(
    shop: CommandLine, start: Callable[..., subprocess.Popen[str]]
) -> None:
    supervisor = start("worker", "--processes", "2", "--shutdown-timeout", "1")
    workers = [psutil.Process(pid) for pid in wait_for_workers(shop, 2)]

    supervisor.kill()

    _, left = psutil.wait_procs(workers, timeout=LIMIT)
    for worker in left:
        worker.kill()
    assert not left


def test_processes_that_cannot_start_end_the_supervisor_with_their_exit_code(
    shop: CommandLine, start: Callable[..., subprocess.Popen[str]]
) -> None:
    supervisor = start("worker", "--app", "nowhere", "--processes", "4")

    said, _ = supervisor.communicate(timeout=LIMIT)

    assert supervisor.returncode == 2
    assert said.count("there is no module 'nowhere'") == 1
    assert "worker process 1 cannot start: exit code 2" in said
    assert "Traceback" not in said


def test_several_processes_stop_by_themselves_when_idle(
    shop: CommandLine, start: Callable[..., subprocess.Popen[str]]
) -> None:
    job_id = shop.enqueue("mail", '"ada"')

    supervisor = start("worker", "--processes", "2", "--until-idle")
    said, _ = supervisor.communicate(timeout=LIMIT)

    assert supervisor.returncode == 0, said
    assert shop.json("jobs", "show", job_id)["state"] == "completed"


def test_dev_restarts_when_code_changes_and_survives_a_mistake(
    shop: CommandLine, start: Callable[..., subprocess.Popen[str]]
) -> None:
    source = shop.folder / "shop.py"
    text = source.read_text(encoding="utf-8")
    process = start("dev")
    [old] = wait_for_workers(shop, 1)

    source.write_text("this is no Python", encoding="utf-8")
    _read_until(process, "Change your code to try again")
    source.write_text(text.replace('f"{copies} to {to}"', '"changed"'), encoding="utf-8")
    wait_for_workers(shop, 1, besides=old)
    job_id = shop.enqueue("mail", '"ada"')
    wait_until(lambda: shop.json("jobs", "show", job_id)["state"] == "completed", "the job is done", seconds=LIMIT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)

    assert shop.json("jobs", "show", job_id)["result"] == "changed"
    assert process.returncode == 0


def _read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended without saying {text!r}")


def test_an_idle_worker_says_what_it_leaves_and_why(shop: CommandLine) -> None:
    shop.enqueue("mail", '"ada"', "--delay", "1h")
    shop.enqueue("wait", '"file"')

    lines = shop.run("worker", "--until-idle", "--queues", "default,slwo").stderr.splitlines()

    assert any("queue slwo has no jobs, and no task of this app uses it. Did you mean slow?" in line for line in lines)
    [left] = [line for line in lines if "These jobs are left" in line]
    assert "queue default: 1 scheduled" in left
    assert "queue slow, which this worker does not serve: 1 queued" in left
    assert re.search(r"the next scheduled job is due in 3,[56]\d\d s", left)
    assert "no running worker of queue slow knows task shop.wait" in left
