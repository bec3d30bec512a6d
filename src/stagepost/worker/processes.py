"""Processes for handlers that use the CPU or may crash. Each runs one attempt at a time, and talks JSON over pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stagepost.client.running import RunningAttempt
from stagepost.client.tasks import AppTask, app_of
from stagepost.config.logging import log_variables
from stagepost.errors import TaskError
from stagepost.model.job import LeasedJob
from stagepost.model.outcome import Crashed, Outcome
from stagepost.store.settlement import Settlement
from stagepost.task import Task

__all__ = [
    "STOP_SIGNALS",
    "Assignment",
    "HandlerProcess",
    "ProcessPool",
    "Reply",
    "Report",
    "RunningChild",
    "read_frame",
    "write_frame",
]

LENGTH_BYTES = 8
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
"""Signals that systemd or a terminal may send to every process at once."""


class Assignment(msgspec.Struct, frozen=True):
    """The attempt that a child is to run."""

    job: LeasedJob
    module: str
    """The module that defines the task. If that is the main program, `script` is its file."""
    script: str | None
    task_name: str
    setup: str | None = None
    """A function to call first, as `module:name`, which prepares the process for the app's modules."""


class Report(msgspec.Struct, frozen=True, tag=True):
    """The progress of the attempt."""

    progress: str


class Reply(msgspec.Struct, frozen=True, tag=True):
    """The outcome of the attempt."""

    outcome: Outcome
    settlement: Settlement | None = None
    """How the handler has ended the attempt in a transaction of its own."""


class ProcessPool:
    """Starts children when they are needed, keeps idle ones and replaces dead ones."""

    def __init__(self, folder: Path | None = None) -> None:
        """Children start in `folder`, the directory where the app was created; the current one unless given."""
        self._lock = threading.Lock()
        self._idle: list[HandlerProcess] = []
        self._folder = folder or Path.cwd()
        self._alive: set[HandlerProcess] = set()
        self._is_closed = False

    def run(self, running: RunningAttempt, running_child: RunningChild) -> Reply:
        """Run an attempt in a child. A child that dies is a crash of this attempt alone.

        `running` receives the progress that the handler reports, and `running_child` the child, so that another thread
        can kill it.
        """
        assignment = assignment_of(running.job, running.task)
        child = self._take()
        if not running_child.set(child):
            self._keep(child)
            return Reply(Crashed("the attempt ended before it started"))
        try:
            reply = child.run(running, assignment)
        except (EOFError, OSError, ValueError) as error:  # ValueError: its pipes were closed when it was killed
            self._drop(child)
            return Reply(Crashed(f"the handler's process died ({child.exit_text()}): {error}"))
        except TaskError:  # it was sent nothing
            self._keep(child)
            raise
        self._keep(child)
        return reply

    def close(self) -> None:
        """End all children, including those that are starting or run an abandoned attempt."""
        with self._lock:
            self._is_closed = True
            self._idle.clear()
            children = list(self._alive)
        for child in children:
            self._drop(child)

    def _keep(self, child: HandlerProcess) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(child)
                return
        self._drop(child)

    def _drop(self, child: HandlerProcess) -> None:
        child.kill()
        with self._lock:
            self._alive.discard(child)

    def _take(self) -> HandlerProcess:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.is_alive():
                    return child
                self._alive.discard(child)
        child = HandlerProcess(self._folder)
        with self._lock:
            self._alive.add(child)
            is_closed = self._is_closed
        if is_closed:
            self._drop(child)
        return child


class RunningChild:
    """The child that runs an attempt, for another thread that ends the attempt; the child may not be there yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: HandlerProcess | None = None
        self._is_over = False

    def set(self, child: HandlerProcess) -> bool:
        """Set the child; False if the attempt has ended and must not start."""
        with self._lock:
            self._child = child
            return not self._is_over

    def kill(self) -> None:
        """End the attempt: kill its child, or prevent one from starting it."""
        with self._lock:
            child, self._is_over = self._child, True
        if child is not None:
            child.kill()


class HandlerProcess:
    """One process and the two pipes to it."""

    def __init__(self, folder: Path) -> None:
        their_input, our_output = os.pipe()
        our_input, their_output = os.pipe()
        # -P: modules in the current directory are imported only if this process would import them as well.
        command = [sys.executable, "-P", "-m", "stagepost.worker.process_main", str(their_input), str(their_output)]
        with _stop_signals_blocked():
            self._process = subprocess.Popen(
                command,
                pass_fds=(their_input, their_output),
                stdin=subprocess.DEVNULL,
                env=_environment(folder),
                cwd=folder if folder.is_dir() else None,  # it may have been deleted meanwhile
            )
        os.close(their_input)
        os.close(their_output)
        self._output = os.fdopen(our_output, "wb")
        self._input = os.fdopen(our_input, "rb")

    def run(self, running: RunningAttempt, assignment: Assignment) -> Reply:
        """Send an attempt, wait for its outcome, and note the progress that it reports."""
        write_frame(self._output, msgspec.json.encode(assignment))
        while True:
            match _decode(read_frame(self._input)):
                case Report(progress):
                    running.reported = progress
                case Reply() as reply:
                    return reply

    def is_alive(self) -> bool:
        """Whether it has not exited."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._output, self._input):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()

    def exit_text(self) -> str:
        """Describe how the process ended."""
        code = self._process.poll()
        if code is None:
            return "still running"
        return f"signal {-code}" if code < 0 else f"exit code {code}"


@contextlib.contextmanager
def _stop_signals_blocked() -> Iterator[None]:
    """Block signals in a process that this thread starts, until the process has installed its handlers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def assignment_of(job: LeasedJob, task: Task[..., Any]) -> Assignment:
    """Build the assignment, which says where a child finds the task."""
    module = task.function.__module__
    script = None
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec is not None else module
        if spec is None and getattr(main, "__file__", None) is None:
            raise TaskError(
                f"task {task.name} has pool='process', but is defined in a notebook or at a prompt, which another "
                f"process cannot import. Move it to a module."
            )
        script = None if spec is not None else str(Path(main.__file__ or "").resolve())
    setup = app_of(task).process_setup if isinstance(task, AppTask) else None
    return Assignment(job=job, module=module, script=script, task_name=task.name, setup=setup)


def write_frame(pipe: Any, content: bytes) -> None:
    """Write one message to a pipe."""
    pipe.write(len(content).to_bytes(LENGTH_BYTES, "big") + content)
    pipe.flush()


def read_frame(pipe: Any) -> bytes:
    """Read one message from a pipe; raises EOFError if the other end is closed."""
    head = pipe.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        raise EOFError("the other end was closed")
    size = int.from_bytes(head, "big")
    content: bytes = pipe.read(size)
    if len(content) < size:
        raise EOFError("the other end was closed in the middle of a message")
    return content


def _decode(frame: bytes) -> Report | Reply:
    return msgspec.json.decode(frame, type=Report | Reply)


def _environment(folder: Path) -> dict[str, str]:
    """Give the child this process's import path; relative entries start at the directory of the app."""
    return {**os.environ, **log_variables(), "PYTHONPATH": os.pathsep.join(str(folder / path) for path in sys.path)}
