"""Fixtures: a small video, and dubbing of it with stand-in engines on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stagepost_dubbing import Dubbing
from stagepost_dubbing.media.ffmpeg import find_ffmpeg
from tests.apps.dubbing.s3 import S3_VARIABLES, S3Server, s3_server
from tests.apps.dubbing.stand_ins import Control

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


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
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
        "STAND_INS": str(control.directory),
        "STAGEPOST_POLL_SHORTEST": "0.02",
        "STAGEPOST_POLL_LONGEST": "0.1",
        "STAGEPOST_LEASE": "3",
        "TTS_MAX_RETRIES": "1",
        "TTS_RETRY_DELAY_SECONDS": "0.01",
        "TRANSLATE_ITEM_MAX_RETRIES": "1",
    }


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
