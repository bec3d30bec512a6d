"""Private server processes: a temporary directory, a free port, an unprivileged account, stopped by pid."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import psutil

LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below the ports that Linux uses for outgoing connections, which could take a server's port while it restarts."""
START_SECONDS = 180.0
STOP_SECONDS = 120.0

# Outlives a test process that is killed: when the pipe on its standard input closes, the server goes too.
LEASH = """
read -r _
kill -CONT "$1"; kill -"$2" "$1"
tries=0
while kill -0 "$1" && [ "$tries" -lt 10 ]; do sleep 1; tries=$((tries + 1)); done
kill -KILL "$1"
rm -rf "$3"
"""


class ServerFailed(RuntimeError):
    """A private server did not start, stop or answer in time."""


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float) -> None:
    """Poll until the condition holds; for real processes, which give no signal to wait on."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ServerFailed(f"waited {seconds:g} s in vain: {what}")
        time.sleep(0.02)


def free_port() -> int:
    """Choose a port that nobody listens on, and that the system gives to no outgoing connection meanwhile."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind((LOOPBACK, port))
            return port
    raise ServerFailed(f"no port between {PORTS[0]} and {PORTS[-1]} is free")


def answers_on(port: int, *, seconds: float = 1.0) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=seconds):
        return True
    return False


def find_program(name: str, places: Iterable[str] = ()) -> Path | None:
    """Look in `places` (glob patterns of directories, highest version first), then on PATH and in sbin."""
    for place in places:
        for directory in sorted(Path("/").glob(place.lstrip("/")), key=_version_in, reverse=True):
            if os.access(directory / name, os.X_OK):
                return directory / name
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    return Path(found) if found else None


def _version_in(directory: Path) -> list[int]:
    digits = "".join(c if c.isdigit() else " " for c in str(directory))
    return [int(number) for number in digits.split()]


def unprivileged_account(*names: str) -> str | None:
    """Name an account to run a server as; None (keep the current one) unless we are root."""
    if os.geteuid() != 0:
        return None
    for name in (*names, "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise ServerFailed(f"none of the accounts {', '.join(names)}, nobody exists; servers must not run as root")


def private_directory(label: str, account: str | None) -> Path:
    """Make a directory that `account` owns and can reach, even where TMPDIR is root's own."""
    parent = Path(tempfile.gettempdir()).resolve()
    if account is not None and not all(p.stat().st_mode & 0o001 for p in (parent, *parent.parents)):
        parent = Path("/tmp")  # noqa: S108 (mkdtemp makes the name unpredictable)
    directory = Path(tempfile.mkdtemp(prefix=f"stagepost-{label}-", dir=parent))
    if account is not None:
        shutil.chown(directory, account)
    return directory


class PrivateServer:
    """A server that belongs to one test run; usable again after `stop` or `kill`, gone after `close`."""

    label: ClassVar[str]
    accounts: ClassVar[tuple[str, ...]] = ()
    quick_stop: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self.port = free_port()
        self.account = unprivileged_account(*self.accounts)
        self.directory = private_directory(self.label, self.account)
        self.log = self.directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None
        self._prepared = False

    @classmethod
    def missing_program(cls) -> str | None:
        """Name the first program that is not installed; None if the server can be started."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """An address with the right to administer."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make the data directory; runs once, before the first start."""
        raise NotImplementedError

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {"HOME": str(self.directory)}

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed(f"{self.label} on port {self.port} is not running; call start() first")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start on the same port and data as before; returns when connections are accepted."""
        if self.is_running:
            raise ServerFailed(f"{self.label} on port {self.port} is already running")
        if not self._prepared:
            self.prepare()
            self._prepared = True
        with self.log.open("ab") as log:
            self._process = self._spawn(self.command(), log.fileno())
        self._leash = self._leash_to(self._process.pid)
        wait_until(self._is_up, f"{self.label} to accept connections on port {self.port}", seconds=START_SECONDS)

    def stop(self) -> None:
        """Ask the server to end and wait for it; nothing happens if it is down."""
        self.stop_with(self.quick_stop)

    def stop_with(self, number: signal.Signals) -> None:
        if self.is_running:
            self.resume()
            os.kill(self.pid, number)
        self._reap(STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL the server process, as the kernel's out-of-memory killer would."""
        os.kill(self.pid, signal.SIGKILL)
        self._reap(STOP_SECONDS)

    def pause(self) -> None:
        """SIGSTOP the whole process tree and wait for it: the server hangs, and does not refuse."""
        _suspend([psutil.Process(self.pid)])  # first, so that it starts no new child meanwhile
        _suspend(self.tree()[1:])

    def resume(self) -> None:
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def tree(self) -> list[psutil.Process]:
        """The server process and then its descendants."""
        server = psutil.Process(self.pid)
        return [server, *server.children(recursive=True)]

    def close(self) -> None:
        try:
            self.stop()
        except ServerFailed:
            self.kill()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run_tool(self, *command: str) -> None:
        """Run a program of the server (initdb and the like) to its end, in its account."""
        with self.log.open("ab") as log:
            process = self._spawn(command, log.fileno())
        if process.wait(timeout=START_SECONDS) != 0:
            raise ServerFailed(f"{command[0]} ended with {process.returncode}:\n{self._log_tail()}")

    def _spawn(self, command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=self.directory,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC", **self.environment()},
            user=self.account,
            group=pwd.getpwnam(self.account).pw_gid if self.account else None,
            extra_groups=[] if self.account else None,
            start_new_session=True,  # Ctrl-C is for the tests, which then stop the server
        )

    def _leash_to(self, pid: int) -> subprocess.Popen[bytes]:
        stop = self.quick_stop.name.removeprefix("SIG")
        return subprocess.Popen(
            ["sh", "-c", LEASH, "leash", str(pid), stop, str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _is_up(self) -> bool:
        if not self.is_running:
            raise ServerFailed(f"{self.label} ended while starting:\n{self._log_tail()}")
        return self.is_ready()

    def _reap(self, seconds: float) -> None:
        if self._process is not None:
            try:
                self._process.wait(timeout=seconds)
            except subprocess.TimeoutExpired as error:
                message = f"{self.label} (pid {self.pid}) did not end within {seconds:g} s"
                raise ServerFailed(f"{message}:\n{self._log_tail()}") from error
        if self._leash is not None:
            self._leash.kill()  # before its pipe closes: the pid it knows may belong to another soon
            self._leash.communicate()
        self._process = self._leash = None

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
        return f"(no log in {self.log})"


def _suspend(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    wait_until(lambda: all(map(_stands_still, processes)), f"{processes} to stop", seconds=STOP_SECONDS)


def _stands_still(process: psutil.Process) -> bool:
    """Whether it will do nothing more; a signal takes effect a moment after it was sent."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
    return True
