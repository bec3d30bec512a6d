"""I12: no fault leaves anything behind: no open transaction, no connection on loan, no thread, no file."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.fault.backends import Backend
from tests.fault.nursery import WorkerProcess

PASSING_THREADS = re.compile(r"stagepost-deadlines|asyncio_|pytest|fault-proxy")
"""Threads that end by themselves after a while."""
SQLITE_FILE = re.compile(r"\.db(-wal|-shm|-journal)?$")
SETTLE_SECONDS = 60.0
MORE_MEMORY = 24 * 2**20
MORE_FILES, MORE_THREADS = 12, 4
"""Pools that grow to their full size, not more: what a fault leaks, it leaks hundreds of times."""


@dataclass(frozen=True)
class Footprint:
    """What a process holds."""

    files: int
    threads: int
    memory: int

    @classmethod
    def of(cls, pid: int) -> Footprint:
        process = psutil.Process(pid)
        return cls(process.num_fds(), process.num_threads(), process.memory_info().rss)


def no_bigger_than(before: Footprint, pid: int) -> None:
    """Wait until a process holds no more than before; memory may have grown a little, and never shrinks."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        now = Footprint.of(pid)
        if now.files <= before.files + MORE_FILES and now.threads <= before.threads + MORE_THREADS:
            break
        if time.monotonic() > deadline:
            raise AssertionError(f"process {pid} held {before} and holds {now}")
        time.sleep(0.05)
    assert now.memory <= before.memory + MORE_MEMORY, f"process {pid} held {before} and holds {now}"


def own_files() -> list[str]:
    """What this process has open, but for SQLite's files: it keeps those for reuse while another connection is open."""
    gc.collect()  # what only a cycle holds is not leaked
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            targets.append(re.sub(r"\d+", "", str(link.readlink())))
    return sorted(target for target in targets if not SQLITE_FILE.search(target))


def own_threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if not PASSING_THREADS.match(thread.name))


def nothing_left(backend: Backend, *, files: list[str], threads: list[str]) -> None:
    """Wait until this process holds what it held, and the database has no session but ours."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        sessions = backend.open_sessions()
        if own_threads() == threads and own_files() == files and not sessions:
            return
        if time.monotonic() > deadline:
            assert sessions == [], f"sessions are left at the database: {sessions}"
            assert own_threads() == threads
            assert own_files() == files
            return
        time.sleep(0.02)


def no_open_transaction(backend: Backend) -> None:
    """Wait until nobody is idle in a transaction."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while idle := [session for session in backend.open_sessions() if session[1]]:
        assert time.monotonic() < deadline, f"idle in transaction: {idle}"
        time.sleep(0.15)  # MariaDB answers from memory if it is asked more often than every 100 ms


def pools_empty(worker: WorkerProcess) -> None:
    """Ask a worker how many connections its pools have on loan, until it says none."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        asked = worker.logged().count("pools:")
        worker.signal(signal.SIGUSR1)
        while worker.logged().count("pools:") == asked:
            assert time.monotonic() < deadline, "the worker does not answer"
            time.sleep(0.01)
        in_use = json.loads(worker.logged().rpartition("pools:")[2].splitlines()[0])
        if not any(in_use.values()):
            return
        assert time.monotonic() < deadline, f"connections on loan: {in_use}"
        time.sleep(0.05)
