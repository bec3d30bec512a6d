"""Fixtures: a small video, and dubbing of it with stand-in engines on each database."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stagepost_dubbing import Dubbing
from stagepost_dubbing.media.ffmpeg import find_ffmpeg
from tests.apps.dubbing.broker import Ear
from tests.apps.dubbing.s3 import S3_VARIABLES, S3Server, s3_server
from tests.apps.dubbing.stand_ins import Control, write_ffmpeg
from tests.apps.dubbing.workers import dubbed, facts
from tests.services.rabbitmq import RabbitmqServer

HERE = "tests.apps.dubbing.stand_ins"

MakeDubbing = Callable[..., Dubbing]


@pytest.fixture(scope="session")
def small_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven seconds of a test picture and a tone."""
    file = tmp_path_factory.mktemp("video") / "small.mp4"
    done = find_ffmpeg().run(
        ["-f", "lavfi", "-i", "testsrc=size=160x120:rate=10", "-f", "lavfi", "-i", "sine=frequency=300",
         "-t", "7", "-c:v", "mpeg4", "-c:a", "aac", "-shortest", str(file)],
        seconds=60,
    )  # fmt: skip
    assert done.code == 0, done.log
    return file


@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.prove) for name in ("postgres", "mariadb"))])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/dubbing.db"
    url: str = request.getfixturevalue(f"{request.param}_database")
    return url


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server for all tests; each has a prefix of its own. Its keys are in the environment, as they should be."""
    with pytest.MonkeyPatch.context() as patched, s3_server() as server:
        for name, value in S3_VARIABLES.items():
            patched.setenv(name, value)
        yield server


@pytest.fixture
def control(tmp_path: Path) -> Control:
    """Governs the stand-in engines."""
    directory = tmp_path / "control"
    directory.mkdir()
    return Control(directory)


@pytest.fixture
def environment(tmp_path: Path, control: Control) -> dict[str, str]:
    """Variables of a quick worker with stand-in engines; databases are for tests to add."""
    return quick_variables(tmp_path, control)


def quick_variables(directory: Path, control: Control) -> dict[str, str]:
    """The same for fixtures that last longer."""
    work = directory / "work"
    work.mkdir()
    return {
        "DUBBING_HOME": str(directory / "home"),
        "DUBBING_WORK_DIRECTORY": str(work),
        "DUBBING_RECOGNISER": f"{HERE}:StandInRecogniser",
        "DUBBING_TRANSLATOR": f"{HERE}:StandInTranslator",
        "DUBBING_VOICE": f"{HERE}:StandInVoice",
        "DUBBING_REQUEUE_RULE": "@yearly",  # the default is due every quarter of an hour, also during a test
        "STAND_INS": str(control.directory),
        "STAGEPOST_POLL_SHORTEST_SECONDS": "0.02",
        "STAGEPOST_POLL_LONGEST_SECONDS": "0.1",
        # Longer than any machine stands still; who kills a worker ends its leases with `end_leases`.
        "STAGEPOST_LEASE_SECONDS": "30",
        "TTS_MAX_RETRIES": "1",
        "TTS_RETRY_DELAY_SECONDS": "0.01",
        "TRANSLATE_ITEM_MAX_RETRIES": "1",
    }


@pytest.fixture
def governed_ffmpeg(tmp_path: Path, control: Control, monkeypatch: pytest.MonkeyPatch) -> str:
    """An ffmpeg before all others on the path, here and in workers, which `control` slows down."""
    program = tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    write_ffmpeg(program, control, find_ffmpeg().program)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return str(program)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, small_video: Path) -> object:
    """All that matters of the small video when it is dubbed by stand-ins, and nothing goes wrong."""
    directory = tmp_path_factory.mktemp("undisturbed")
    control = Control(directory)
    with Dubbing(environment=quick_variables(directory, control)) as dubbing:
        return facts(dubbing, dubbed(dubbing, small_video).id)


@pytest.fixture
def make_dubbing(environment: dict[str, str]) -> Iterator[MakeDubbing]:
    """Makes the application with further variables."""
    with ExitStack() as stack:

        def make(**variables: str) -> Dubbing:
            dubbing = stack.enter_context(Dubbing(environment=environment | variables))
            dubbing.migrate()
            return dubbing

        yield make


@pytest.fixture
def dubbing(make_dubbing: MakeDubbing, database_url: str) -> Dubbing:
    """The application on each database."""
    return make_dubbing(DUBBING_DATABASE_URL=database_url)


@pytest.fixture
def distributed(postgres_database: str, rabbitmq_server: RabbitmqServer, s3: S3Server) -> Iterator[dict[str, str]]:
    """Variables of workers that share PostgreSQL, RabbitMQ and S3."""
    with rabbitmq_server.database() as broker:
        yield {
            "DUBBING_DATABASE_URL": postgres_database,
            "STAGEPOST_TRANSPORT": broker,
            "DUBBING_OBJECTS_URL": s3.url(str(uuid.uuid4())),
            "TTS_MAX_CONCURRENCY": "1",
        }


@pytest.fixture
def ear(distributed: dict[str, str]) -> Iterator[Ear]:
    """Hears every message of those workers."""
    ear = Ear(distributed["STAGEPOST_TRANSPORT"])
    yield ear
    ear.close()
