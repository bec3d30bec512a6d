"""The external programs among the examples, built and started as their users would."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from stagepost.config.rabbitmq import RabbitmqSettings
from tests.services.fixtures import USED, demand
from tests.services.locate import LIBRABBITMQ, NODE, Source, locate

EXAMPLES = Path(__file__).parents[2] / "examples" / "remote"
DIE_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
AMQPLIB = "amqplib@2.3.1"


@dataclass
class Recogniser:
    """A program that can be started, and ended in any way, as often as a test likes."""

    command: list[str]
    log: Path
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, url: str, *, queue: str = "recogniser", settings: RabbitmqSettings | None = None
    ) -> subprocess.Popen[bytes]:
        settings = settings or RabbitmqSettings()
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [
                    *DIE_WITH_PARENT,
                    *self.command,
                    url,
                    settings.exchange_name,
                    settings.routing_key(queue),
                    settings.answers,
                ],
                stderr=log,
            )
        self._running.append(process)
        return process

    @contextlib.contextmanager
    def running(self, url: str, settings: RabbitmqSettings) -> Iterator[subprocess.Popen[bytes]]:
        """Run it for the body; afterwards it must stop when told to."""
        process = self.start(url, settings=settings)
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, self.log.read_text()
        finally:
            self.kill_all()

    def kill_all(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._running = []


@pytest.fixture(scope="session")
def c_program(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> list[str]:
    """The command of the one in C."""
    demand(LIBRABBITMQ, pytestconfig)
    program = tmp_path_factory.mktemp("recogniser") / "recogniser"
    source = str(EXAMPLES / "recogniser.c")
    build = ["gcc", "-Wall", "-Wextra", "-Werror", "-O2", "-o", str(program), source, "-lrabbitmq", "-lcjson"]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [str(program)]


@pytest.fixture(scope="session")
def node_program(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> list[str]:
    """The command of the one in JavaScript; where its library cannot be had, the one in C must do."""
    location = locate(NODE)
    if location.source is Source.MISSING:
        _pass_over(f"{location.detail}. To fix it: {NODE.remedy}", pytestconfig)
    folder = tmp_path_factory.mktemp("node")
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", AMQPLIB]
    try:
        done = subprocess.run(install, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        _pass_over(f"`{' '.join(install)}` took too long", pytestconfig)
    if done.returncode != 0:
        _pass_over(f"`{' '.join(install)}` failed: {done.stderr.strip()[-300:]}", pytestconfig)
    pytestconfig.stash[USED][NODE.name] = location.detail
    (folder / "recogniser.mjs").write_bytes((EXAMPLES / "recogniser.mjs").read_bytes())
    return ["node", str(folder / "recogniser.mjs")]


@pytest.fixture
def recogniser(c_program: list[str], tmp_path: Path) -> Iterator[Recogniser]:
    """The one in C."""
    recogniser = Recogniser(c_program, tmp_path / "recogniser.log")
    yield recogniser
    recogniser.kill_all()


@pytest.fixture(params=["c", "node"])
def any_recogniser(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Recogniser]:
    """Each of them in turn."""
    command = request.getfixturevalue(f"{request.param}_program")
    recogniser = Recogniser(command, tmp_path / "recogniser.log")
    yield recogniser
    recogniser.kill_all()


def _pass_over(reason: str, config: pytest.Config) -> NoReturn:
    config.stash[USED][NODE.name] = f"NOT TESTED: {reason}"
    pytest.skip(f"node cannot be had: {reason}")
