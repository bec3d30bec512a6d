"""A real video in, a real dubbed video out: with real engines, embedded and distributed, from the same code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from stagepost_dubbing import Dubbing
from tests.apps.dubbing.checks import check_dubbed, word_error_rate
from tests.apps.dubbing.s3 import S3Server
from tests.apps.dubbing.talks import talk
from tests.services.rabbitmq import RabbitmqServer

LIMIT = 600
ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.timeout(2 * LIMIT)


@pytest.fixture
def embedded(tmp_path: Path) -> dict[str, str]:
    """Variables of one program with everything in a directory."""
    return {"DUBBING_HOME": str(tmp_path / "home")}


@pytest.fixture
def distributed(
    tmp_path: Path, postgres_database: str, rabbitmq_server: RabbitmqServer, s3: S3Server
) -> Iterator[dict[str, str]]:
    """Variables of programs that share PostgreSQL, RabbitMQ and S3."""
    with rabbitmq_server.database() as broker:
        yield {
            "DUBBING_HOME": str(tmp_path / "home"),
            "DUBBING_DATABASE_URL": postgres_database,
            "STAGEPOST_TRANSPORT": broker,
            "DUBBING_OBJECTS_URL": s3.url(str(uuid.uuid4())),
        }


def command(environment: Mapping[str, str], *arguments: object, code: int = 0) -> str:
    """Run `stagepost-dubbing`, and give what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "stagepost_dubbing", *map(str, arguments)],
        env=os.environ | environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@contextmanager
def workers(environment: Mapping[str, str], log: Path, *, queues: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A worker process, stopped as an operator would."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "stagepost_dubbing", "worker", "--queues", queues],
            env=os.environ | environment, cwd=ROOT, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        assert process.wait(LIMIT) in {0, -9}, log.read_text()[-3000:]


def check(environment: dict[str, str], answer: Any, output: Path, tmp_path: Path) -> None:
    spoken = talk(27)
    with Dubbing(environment=os.environ | environment) as dubbing:
        segments = dubbing.segments(answer["task"]["id"])
        attempts = [(row.step, row.attempt, row.status) for row in dubbing.attempts(answer["task"]["id"])]
    said, heard = (" ".join(text) for text in ([s.text for s in spoken.sentences], [s.src_text for s in segments]))
    assert word_error_rate(said, heard) <= 0.10, (said, heard)
    assert all(segment.mt_text and segment.tts_audio_key for segment in segments)
    check_dubbed(spoken.path, output, segments, directory=tmp_path)
    assert {status for _, _, status in attempts} == {"succeeded"}


def test_one_command_dubs_a_talk(embedded: dict[str, str], tmp_path: Path) -> None:
    output = tmp_path / "out.mp4"

    answer = json.loads(command(embedded, "dub", talk(27).path, "--to", "pt", "-o", output, "--json"))

    assert answer["task"]["status"] == "done"
    check(embedded, answer, output, tmp_path)
    again = json.loads(command(embedded, "dub", talk(27).path, "--to", "pt", "-o", output, "--json"))
    assert again["steps"] == answer["steps"]


@pytest.mark.prove
def test_workers_elsewhere_dub_a_talk(distributed: dict[str, str], tmp_path: Path) -> None:
    output, log = tmp_path / "out.mp4", tmp_path / "workers.log"
    command(distributed, "migrate")

    with ExitStack() as stack:
        for queues in ("extract_audio,mux_video,dubbing", "asr,translate", "tts,tts_compensation"):
            stack.enter_context(workers(distributed, log, queues=queues))
        task_id = json.loads(command(distributed, "dub", talk(27).path, "--to", "pt", "--detach", "--json"))["task"][
            "id"
        ]
        answer = json.loads(command(distributed, "watch", task_id, "--timeout", LIMIT - 20, "--json"))
        command(distributed, "save", task_id, output)

    assert answer["task"]["status"] == "done"
    check(distributed, answer, output, tmp_path)
    assert "TIMEOUT_ASR_SECONDS=600 in force" in log.read_text()
