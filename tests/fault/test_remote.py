"""Remote tasks: the external program and the workers are killed repeatedly; nothing is lost or sent again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import msgspec
import pytest

from stagepost.client import App
from stagepost.config import Settings
from tests.depth import sized
from tests.fault.arena import Arena
from tests.fault.nursery import WorkerProcess
from tests.fault.remote_main import PREFIX, app_of
from tests.services.rabbitmq import RabbitmqServer
from tests.services.recognisers import Recogniser

KILLS = sized(4, 10)
ENDED = "select count(*) from stagepost_job_history"
LASTING = [pytest.mark.nightly, pytest.mark.timeout(1800)]
RESENT = "are sent again"


@pytest.fixture
def broker(rabbitmq_server: RabbitmqServer) -> Iterator[str]:
    with rabbitmq_server.database() as url:
        yield url


class Recognition:
    """Requests on their way through workers and programs, two of each."""

    def __init__(self, arena: Arena, broker: str, recogniser: Recogniser) -> None:
        self.arena, self.broker, self.recogniser = arena, broker, recogniser
        settings = Settings(database_url=arena.url, transport=broker)
        self.app: App = app_of(settings, prefix="fault")
        self.programs: list[subprocess.Popen[bytes]] = []
        self.workers: list[WorkerProcess] = []
        self.logs: list[WorkerProcess] = []

    def start_worker(self) -> None:
        variables = self.arena.environment(transport=self.broker) | {PREFIX: "fault"}
        worker = self.arena.start_program("tests.fault.remote_main", variables)
        self.workers.append(worker)
        self.logs.append(worker)

    def start_program(self) -> None:
        settings = self.app.settings.rabbitmq
        self.programs.append(self.recogniser.start(self.broker, settings=settings))

    def kill_program(self) -> None:
        program = self.programs.pop(0)
        program.kill()
        program.wait()

    def kill_worker(self) -> None:
        worker = self.workers.pop(0)
        worker.kill()
        worker.wait()

    def enqueue(self, number: int) -> list[str]:
        recognise = self.app.registry.get("recognise")
        return [job.id for job in self.app.enqueue_many([recognise.job(f"audio/{n}") for n in range(number)])]

    @property
    def ended(self) -> int:
        [(number,)] = self.arena.backend.rows(ENDED)
        return int(number)

    def wait_for(self, number: int) -> None:
        self.arena.wait(lambda: self.ended >= number, f"{number} jobs to end", seconds=300)

    def resent(self) -> list[str]:
        """What the workers, dead or alive, say of requests that were sent again."""
        return [line for worker in self.logs for line in worker.logged().splitlines() if RESENT in line]

    def close(self) -> None:
        self.recogniser.kill_all()
        for worker in self.workers:
            worker.kill()
        self.app.close()


@pytest.fixture
def recognition(arena: Arena, broker: str, any_recogniser: Recogniser) -> Iterator[Recognition]:
    recognition = Recognition(arena, broker, any_recogniser)
    yield recognition
    recognition.close()


@pytest.mark.parametrize(
    ("backend", "any_recogniser", "number"),
    [
        ("postgres", "c", sized(200, 1_500)),
        pytest.param("sqlite", "node", 1_500, marks=pytest.mark.prove),
        *(pytest.param(name, "c", 10_000, marks=LASTING) for name in ("sqlite", "postgres", "mariadb")),
        pytest.param("mariadb", "node", 10_000, marks=LASTING),
    ],
    indirect=["backend", "any_recogniser"],
)
def test_every_request_is_answered_once_however_often_both_sides_are_killed(
    recognition: Recognition, number: int
) -> None:
    ids = recognition.enqueue(number)
    for _ in range(2):
        recognition.start_worker()
        recognition.start_program()
    for kill in range(KILLS):
        recognition.wait_for(number * kill // KILLS)
        if kill % 2:
            recognition.kill_worker()
            recognition.start_worker()
        else:
            recognition.kill_program()
            recognition.start_program()
    recognition.wait_for(number)

    rows = recognition.arena.backend.rows(
        "select id, state, attempts, failures, crashes, payload, result from stagepost_job_history"
    )
    assert sorted(str(row[0]) for row in rows) == sorted(ids)
    assert {row[1:5] for row in rows} == {("completed", 1, 0, 0)}
    for *_, payload, result in rows:
        key = as_object(payload)["audio_key"]
        assert as_object(result) == {"text": f"words of {key}", "letters": len(key)}
    assert recognition.resent() == []


def as_object(value: object) -> dict[str, str]:
    """Read JSON that a driver may have read already."""
    found = json.loads(value) if isinstance(value, str | bytes) else value
    return msgspec.convert(found, dict)
