"""Workers, here and in processes that a test may kill, and what must be the same whatever happened to them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pymysql

from stagepost import Worker
from stagepost_dubbing import Dubbing, Task
from stagepost_dubbing.cli.dub import work_until_ended
from stagepost_dubbing.media.muxing import video_checksum
from tests.apps.dubbing.stand_ins import Control

__all__ = [
    "PATIENCE_SECONDS",
    "dubbed",
    "end_leases",
    "facts",
    "stand_still",
    "statuses",
    "wait_for_call",
    "wait_until",
    "work",
    "work_until_idle",
    "worker_process",
]

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 200
OVERTAKEN = (sqlite3.OperationalError, psycopg.OperationalError, pymysql.OperationalError)
"""What databases say when somebody else holds a lock for too long."""


def work(dubbing: Dubbing, task_id: str) -> Task:
    """Run a worker until the task has ended."""

    async def run() -> Task:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await work_until_ended(dubbing, task_id)

    return asyncio.run(run())


def work_until_idle(dubbing: Dubbing, *queues: str) -> None:
    """Run a worker until nothing is due in these queues, or in any."""

    async def run() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await Worker(dubbing.app, queues=queues).run(until_idle=True)

    asyncio.run(run())


def dubbed(dubbing: Dubbing, video: Path) -> Task:
    """A task that went well."""
    task = work(dubbing, dubbing.submit(video, to="pt").id)
    assert task.status == "done", task.error
    return task


def statuses(dubbing: Dubbing, task_id: str) -> list[tuple[str, int, str]]:
    """What became of every attempt."""
    return [(row.step, row.attempt, row.status) for row in dubbing.attempts(task_id)]


@contextmanager
def worker_process(environment: dict[str, str], *, queues: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A worker that a test may kill."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stagepost_dubbing", "worker", "--queues", queues],
        env=os.environ | environment, cwd=ROOT, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Look often, so that a test acts right after something has happened; give up at some time."""
    pause = threading.Event()
    for _ in range(PATIENCE_SECONDS * 100):
        if is_so():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen in time")


def wait_for_call(control: Control, call: str) -> None:
    wait_until(lambda: call in control.calls)


def end_leases(dubbing: Dubbing) -> None:
    """Let what workers hold that were killed end now rather than in half a minute."""
    with dubbing.services.database.transaction() as tx:
        tx.run_text("update stagepost_job set lease_until = 0 where state = 'running'")
        tx.run_text("update stagepost_leader set expires_at = 0")


def stand_still(process: subprocess.Popen[bytes], dubbing: Dubbing) -> None:
    """Stop a worker as if for long, and let its leases end; where it stands it keeps nobody from writing."""
    for _ in range(10):
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        try:
            end_leases(dubbing)
        except OVERTAKEN:
            process.send_signal(signal.SIGCONT)  # it stood in a transaction, and what it locked stays so
            wait_until(lambda: _can_write(dubbing))  # else it is stopped again before it has moved
        else:
            return
    raise AssertionError("it stood in a transaction each time")


def _can_write(dubbing: Dubbing) -> bool:
    """Whether nobody stands in a transaction with what `end_leases` changes; it stays as it is."""
    try:
        with dubbing.services.database.transaction() as tx:
            tx.run_text("update stagepost_job set lease_until = lease_until where state = 'running'")
            tx.run_text("update stagepost_leader set expires_at = expires_at")
    except OVERTAKEN:
        return False
    return True


def facts(dubbing: Dubbing, task_id: str) -> object:
    """All of a dubbed video that matters: what is said when, how it sounds, and the pictures."""
    objects = dubbing.services.objects
    segments = dubbing.segments(task_id)
    texts = [(segment.start_ms, segment.end_ms, segment.src_text, segment.mt_text) for segment in segments]
    sound = hashlib.sha256(objects.read(f"tts/{task_id}/dub.wav")).hexdigest()
    with tempfile.TemporaryDirectory() as directory:
        video = objects.fetch(f"outputs/{task_id}/final.mp4", Path(directory, "compared.mp4"))
        return texts, sound, video_checksum(dubbing.services.ffmpeg, video)
