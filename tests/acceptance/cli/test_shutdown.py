"""`stagepost worker` as a tree of processes that all get the signal at once, as systemd sends it by default."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.cli.command_line import PATIENCE, CommandLine
from tests.services.processes import wait_until

LIMIT = 120.0
PATIENT = ("--shutdown-timeout", str(10 * LIMIT))
TWO = ("--processes", "2", "--concurrency", "3")
"""So that each of them has jobs."""
KINDS = ("on_loop", "in_thread", "in_process")

PROJECT = """
import asyncio
import os
import time
from pathlib import Path

from stagepost import App

app = App()


@app.task
async def on_loop(number: int) -> None:
    Path(f"started-on_loop-{number}").touch()
    while not Path("gate").exists():
        await asyncio.sleep(0.01)


@app.task
def in_thread(number: int) -> None:
    Path(f"started-in_thread-{number}").touch()
    while not Path("gate").exists():
        time.sleep(0.01)


@app.task(pool="process")
def in_process(number: int) -> None:
    Path(f"started-in_process-{number}").touch()
    while not Path("gate").exists():
        time.sleep(0.01)
"""


class Tree:
    """A worker command and every process below it."""

    def __init__(self, shop: CommandLine, *arguments: str) -> None:
        self._shop = shop
        self.root = shop.start("worker", *arguments, start_new_session=True)
        self._seen: set[psutil.Process] = set()

    def start_jobs(self, number: int) -> list[str]:
        """Enqueue so many jobs of each kind, and wait until all of them run."""
        jobs = [self._shop.enqueue(kind, str(count)) for kind in KINDS for count in range(number)]
        wait_until(
            lambda: len(list(self._shop.folder.glob("started-*"))) == len(jobs), "all jobs to start", seconds=LIMIT
        )
        return jobs

    def terminate(self) -> None:
        """Send SIGTERM to every process, the deepest first."""
        root = psutil.Process(self.root.pid)
        processes = [*reversed(root.children(recursive=True)), root]
        self._seen.update(processes)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        # The kernel merges a signal with one of the same kind that the process has not received yet.
        wait_until(lambda: not is_pending(self.root.pid, signal.SIGTERM), "the signal to arrive", seconds=LIMIT)

    def wait_for(self, text: str, *, times: int = 1) -> None:
        """Read its log until it has said something so often."""
        assert self.root.stdout is not None
        for line in self.root.stdout:
            times -= text in line
            if not times:
                return
        raise AssertionError(f"it ended without saying {text!r}")

    def end(self) -> str:
        """Wait for its end, which must be in order and leave no process behind; returns the rest of its log."""
        said, _ = self.root.communicate(timeout=LIMIT)
        assert self.root.returncode == 0, said
        _, left = psutil.wait_procs(list(self._seen), timeout=LIMIT)
        assert not left
        return said

    def kill(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen.update(psutil.Process(self.root.pid).children(recursive=True))
        self.root.kill()
        for process in self._seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.root.wait()
        assert self.root.stdout is not None
        self.root.stdout.close()


def is_pending(process_id: int, number: signal.Signals) -> bool:
    """Whether a signal was sent to a process that has not had the time to receive it."""
    try:
        status = Path(f"/proc/{process_id}/status").read_text(encoding="utf-8")
    except FileNotFoundError:  # it has ended
        return False
    [pending] = [line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:")]
    return bool(int(pending, 16) & 1 << number - 1)


@pytest.fixture
def grow(shop: CommandLine) -> Iterator[Callable[..., Tree]]:
    """Starts workers for tasks that wait at a gate, and ends what is left of them."""
    (shop.folder / "gated.py").write_text(PATIENCE + PROJECT, encoding="utf-8")
    shop.environment |= {"STAGEPOST_APP": "gated", "STAGEPOST_PREFETCH": "0"}
    trees: list[Tree] = []

    def begin(*arguments: str) -> Tree:
        trees.append(Tree(shop, *arguments))
        return trees[-1]

    yield begin
    for tree in trees:
        tree.kill()


def ends_of(shop: CommandLine, jobs: list[str]) -> set[tuple[Any, ...]]:
    """What became of jobs: state, attempts, failures, crashes."""
    shown = [shop.json("jobs", "show", job_id) for job_id in jobs]
    return {(job["state"], job["attempt"], job["failures"], job["crashes"]) for job in shown}


@pytest.mark.parametrize("processes", [(), TWO], ids=["one worker", "supervised"])
def test_a_signal_to_every_process_lets_jobs_finish(
    shop: CommandLine, grow: Callable[..., Tree], processes: tuple[str, ...]
) -> None:
    tree = grow(*processes, *PATIENT)
    jobs = tree.start_jobs(2)

    tree.terminate()
    tree.wait_for("stopping:", times=2 if processes else 1)
    (shop.folder / "gate").touch()

    said = tree.end()
    assert ends_of(shop, jobs) == {("completed", 1, 0, 0)}, said


@pytest.mark.parametrize("processes", [(), TWO], ids=["one worker", "supervised"])
def test_after_a_signal_to_every_process_jobs_that_outlast_the_timeout_are_released(
    shop: CommandLine, grow: Callable[..., Tree], processes: tuple[str, ...]
) -> None:
    tree = grow(*processes, "--shutdown-timeout", "0.5")
    jobs = tree.start_jobs(2)

    tree.terminate()

    said = tree.end()
    assert ends_of(shop, jobs) == {("queued", 1, 0, 0)}, said


def test_a_second_signal_to_every_process_releases_jobs(shop: CommandLine, grow: Callable[..., Tree]) -> None:
    tree = grow(*TWO, *PATIENT)
    jobs = tree.start_jobs(2)

    tree.terminate()
    tree.wait_for("stopping:", times=2)
    tree.terminate()

    said = tree.end()
    assert ends_of(shop, jobs) == {("queued", 1, 0, 0)}, said
