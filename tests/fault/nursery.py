"""Starts workers quickly: a process that has imported everything and forks, so that hundreds can be killed."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
WORKER = "tests.fault.worker_main"


@dataclass(eq=False)
class WorkerProcess:
    """A worker started by the nursery; signals are only sent while it is known to be alive."""

    pid: int
    log: Path
    _nursery: Nursery = field(repr=False)

    @property
    def status(self) -> int | None:
        """How it ended, negative by a signal; None while it lives."""
        return self._nursery.status_of(self.pid)

    @property
    def peak_bytes(self) -> int:
        """Its peak memory, known after it has ended."""
        return self._nursery.peak_of(self.pid)

    def signal(self, number: int) -> None:
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        if self.status is None:
            self._nursery.kills += 1
        self.signal(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it with SIGSTOP, and wait until it has stopped."""
        self.signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.pid}/stat")
        while self.status is None and stat.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def wait(self, seconds: float = 120.0) -> int:
        """Wait for its end."""
        return self._nursery.wait_for(self.pid, seconds)

    def logged(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Nursery:
    """The test's side: requests workers and is notified when they die."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._pids: dict[int, int] = {}
        self._statuses: dict[int, int] = {}
        self._peaks: dict[int, int] = {}
        self._asked = 0
        self.kills = 0
        """How many workers were killed while they lived."""
        self.workers: list[WorkerProcess] = []
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._listener = threading.Thread(target=self._listen, name="nursery-listener", daemon=True)
        self._listener.start()

    def start(self, environment: Mapping[str, str], *, program: str = WORKER) -> WorkerProcess:
        """Start a worker, or another program of these tests; returns once it has a process."""
        assert self._process.stdin is not None
        with self._changed:
            self._asked += 1
            number = self._asked
        log = self._folder / f"worker-{number}.log"
        request = {"number": number, "program": program, "environment": dict(environment), "log": str(log)}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._pids, 120):
                raise TimeoutError(f"the nursery started no worker {number}")
            worker = WorkerProcess(self._pids[number], log, self)
        self.workers.append(worker)
        return worker

    def status_of(self, pid: int) -> int | None:
        with self._changed:
            return self._statuses.get(pid)

    def peak_of(self, pid: int) -> int:
        with self._changed:
            return self._peaks[pid]

    def wait_for(self, pid: int, seconds: float) -> int:
        with self._changed:
            if not self._changed.wait_for(lambda: pid in self._statuses, seconds):
                raise TimeoutError(f"worker {pid} did not end within {seconds:g} s")
            return self._statuses[pid]

    def kill_all(self) -> None:
        """Leave no worker to the next test."""
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.wait()
        self.workers = []

    def close(self) -> None:
        self.kill_all()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._listener.join(timeout=60)
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            news: dict[str, Any] = json.loads(line)
            with self._changed:
                if "number" in news:
                    self._pids[news["number"]] = news["pid"]
                    self._statuses.pop(news["pid"], None)  # the system may use a number again
                else:
                    self._statuses[news["pid"]] = news["status"]
                    self._peaks[news["pid"]] = news["peak_bytes"]
                self._changed.notify_all()


def serve() -> None:
    """The nursery's side: fork a worker for each line, and report which ones died."""
    import tests.fault.imports  # noqa: F401 - so that a fork has nothing left to import

    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    selector.register(wake_reader, selectors.EVENT_READ)
    buffer = b""
    while True:
        for key, _ in selector.select():
            if key.fd == wake_reader:
                os.read(wake_reader, 4096)
                _report_dead()
                continue
            data = os.read(sys.stdin.fileno(), 65536)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                _say({"number": request["number"], "pid": _fork(request, [wake_reader, wake_writer])})


def _fork(request: dict[str, Any], descriptors: list[int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _redirect(Path(request["log"]), descriptors)
        os.environ.update(request["environment"])
        importlib.import_module(request["program"]).main()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - into its log
        traceback.print_exc()
        status = 1
    finally:
        sys.stderr.flush()
        os._exit(status)


def _redirect(log: Path, descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.close(nothing)


def _report_dead() -> None:
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _say({"pid": pid, "status": os.waitstatus_to_exitcode(status), "peak_bytes": usage.ru_maxrss * 1024})


def _say(news: dict[str, Any]) -> None:
    os.write(sys.stdout.fileno(), json.dumps(news).encode() + b"\n")


if __name__ == "__main__":
    serve()
