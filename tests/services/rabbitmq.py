"""RabbitMQ for tests: a private node, and separate virtual hosts on any broker that we may administer."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests.services.names import fresh_name, is_stale
from tests.services.processes import (
    LOOPBACK,
    PrivateServer,
    ServerFailed,
    answers_on,
    find_program,
    free_port,
)
from tests.services.server import Server

# Not the wrappers on PATH: those insist on the system's own account and directories.
PROGRAM_DIRECTORIES = (
    "/usr/lib/rabbitmq/bin",
    "/usr/local/lib/rabbitmq/sbin",
    "/opt/homebrew/opt/rabbitmq/sbin",
)
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = 1


class RabbitmqInstance(PrivateServer):
    """A node with its own home, cookie, name server and ports."""

    label = "rabbitmq"
    accounts = ("rabbitmq",)

    def __init__(self) -> None:
        super().__init__()
        self.node = f"stagepost-{self.port}@localhost"
        self._distribution_port = free_port()
        self._names = _NameServer()

    @classmethod
    def missing_program(cls) -> str | None:
        wanted = {"rabbitmq-server": _program("rabbitmq-server"), "epmd": find_program("epmd")}
        return next((name for name, path in wanted.items() if path is None), None)

    def prepare(self) -> None:
        self._names.start()  # ours, because one that Erlang starts outlives the node
        (self.directory / "plugins").write_text("[].\n")
        (self.directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = {LOOPBACK}:{self.port}\n")
        for name in ("plugins", "rabbitmq.conf"):
            (self.directory / name).chmod(0o644)

    def command(self) -> list[str]:
        return [str(_program("rabbitmq-server"))]

    def environment(self) -> Mapping[str, str]:
        return {
            "HOME": str(self.directory),
            "ERL_EPMD_PORT": str(self._names.port),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script then becomes the node, so that its pid is ours
        }

    def is_ready(self) -> bool:
        return refusal(self.url) is None

    def close(self) -> None:
        super().close()
        self._names.close()

    def control(self, *command: str) -> str:
        """Run rabbitmqctl against this node."""
        return _control(self.node, *command, environment=self.environment(), account=self.account)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/%2F"


class _NameServer(PrivateServer):
    """epmd, which Erlang nodes and their tools find each other by."""

    label = "epmd"
    accounts = ("rabbitmq",)

    def prepare(self) -> None:
        """Nothing to make."""

    def command(self) -> list[str]:
        return [str(find_program("epmd")), "-port", str(self.port), "-address", LOOPBACK]

    def is_ready(self) -> bool:
        return answers_on(self.port)


class RabbitmqServer(Server):
    """A broker; its databases are virtual hosts, made with rabbitmqctl on our node or the machine's own."""

    def _create(self) -> str:
        name = fresh_name()
        user = urlsplit(self.url).username or "guest"
        self._control("add_vhost", name)
        self._control("set_permissions", "-p", name, user, ".*", ".*", ".*")
        return name

    def _drop(self, name: str) -> None:
        try:
            self._control("delete_vhost", name)
        except ServerFailed:
            if name in self._names():  # else another run has swept it
                raise

    @contextlib.contextmanager
    def user(self, url: str, *, configure: str, write: str, read: str) -> Iterator[str]:
        """The URL of the same virtual host for another user, who may do what these patterns allow."""
        name, parts = fresh_name(), urlsplit(url)
        self._control("add_user", name, "secret-of-a-test")
        try:
            self._control("set_permissions", "-p", parts.path[1:], name, configure, write, read)
            yield urlunsplit(parts._replace(netloc=f"{name}:secret-of-a-test@{parts.hostname}:{parts.port or 5672}"))
        finally:
            self._control("delete_user", name)

    def _stale(self) -> list[str]:
        with contextlib.suppress(ServerFailed):  # a broker we may use but not administer
            return [name for name in self._names() if is_stale(name)]
        return []

    def _names(self) -> list[str]:
        return self._control("list_vhosts", "--silent", "name").split()

    def _control(self, *command: str) -> str:
        if isinstance(self._instance, RabbitmqInstance):
            return self._instance.control(*command)
        return _control(None, *command, environment={}, account=None)


def standard_urls() -> list[str]:
    return [f"amqp://guest:guest@{LOOPBACK}:5672/%2F"]


def refusal(url: str) -> str | None:
    """Say why the broker cannot be used; None if it offers AMQP 0-9-1."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or LOOPBACK, parts.port or 5672), timeout=60) as connection:
            connection.sendall(PROTOCOL_HEADER)
            answer = connection.recv(1)
    except OSError as error:
        return str(error)
    return None if answer == bytes([METHOD_FRAME]) else "it does not speak AMQP 0-9-1"


def _control(node: str | None, *command: str, environment: Mapping[str, str], account: str | None) -> str:
    program = _program("rabbitmqctl") if node else find_program("rabbitmqctl")
    if program is None:
        raise ServerFailed("rabbitmqctl is not installed, so no virtual host can be made on this broker")
    done = subprocess.run(
        [str(program), *(["--node", node] if node else []), *command],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd="/",
        user=account,
    )
    if done.returncode != 0:
        raise ServerFailed(f"rabbitmqctl {' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _program(name: str) -> Path | None:
    return find_program(name, PROGRAM_DIRECTORIES)
