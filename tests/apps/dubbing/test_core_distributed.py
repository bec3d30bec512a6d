"""PostgreSQL, RabbitMQ and S3: the documents' queues and messages, workers that die, segments that are compensated."""

from __future__ import annotations

import json
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest

from stagepost_dubbing import Dubbing
from tests.apps.dubbing.conftest import MakeDubbing
from tests.apps.dubbing.s3 import S3Server
from tests.apps.dubbing.stand_ins import Control
from tests.apps.dubbing.test_core_faults import PATIENCE_SECONDS, worker_process
from tests.services.rabbitmq import RabbitmqServer

QUEUES = ("extract_audio", "asr", "translate", "tts", "mux_video", "tts_compensation", "dlq")


class Ear:
    """A foreign program that gets a copy of every message."""

    def __init__(self, url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.exchange_declare("task_exchange", "topic", durable=True)
        self._queue = self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.queue_bind(self._queue, "task_exchange", routing_key="#")

    def heard(self) -> list[tuple[str, Any]]:
        """Routing key and body of all messages since the last time."""
        found = []
        while (got := self._channel.basic_get(self._queue, auto_ack=True))[0] is not None:
            found.append((got[0].routing_key, json.loads(got[2])))
        return found

    def heard_until(self, routing_key: str) -> dict[str, Any]:
        """The last message of each routing key, once there is one of this."""
        found: dict[str, Any] = {}
        for _ in range(PATIENCE_SECONDS * 20):
            found |= dict(self.heard())
            if routing_key in found:
                return found
            self._connection.process_data_events(0.05)
        raise AssertionError(f"nothing was published to {routing_key}, only to {sorted(found)}")

    def all_of(self, routing_key: str, number: int) -> list[Any]:
        """The bodies of all messages with this routing key, once there are so many; others are passed over."""
        found: list[Any] = []
        for _ in range(PATIENCE_SECONDS * 20):
            found += [body for key, body in self.heard() if key == routing_key]
            if len(found) >= number:
                return found
            self._connection.process_data_events(0.05)
        raise AssertionError(f"{len(found)} of {number} messages were published to {routing_key}")

    def waiting(self) -> dict[str, int]:
        """How many messages each queue has."""
        return {name: self._channel.queue_declare(f"task.{name}", passive=True).method.message_count for name in QUEUES}

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def variables(postgres_database: str, rabbitmq_server: RabbitmqServer, s3: S3Server) -> Iterator[dict[str, str]]:
    with rabbitmq_server.database() as broker:
        yield {
            "DUBBING_DATABASE_URL": postgres_database,
            "STAGEPOST_TRANSPORT": broker,
            "DUBBING_OBJECTS_URL": s3.url(str(uuid.uuid4())),
            "TTS_MAX_CONCURRENCY": "1",
        }


@pytest.fixture
def ear(variables: dict[str, str]) -> Iterator[Ear]:
    ear = Ear(variables["STAGEPOST_TRANSPORT"])
    yield ear
    ear.close()


def finished(dubbing: Dubbing, task_id: str, environment: dict[str, str], *, processes: int = 2) -> str:
    """How a task ends that these workers work on."""
    with ExitStack() as stack:
        for _ in range(processes):
            stack.enter_context(worker_process(environment))
        return dubbing.wait(task_id, timeout=PATIENCE_SECONDS).status


def test_messages_at_the_broker_are_those_of_the_document(
    make_dubbing: MakeDubbing, environment: dict[str, str], variables: dict[str, str], ear: Ear, small_video: Path
) -> None:
    dubbing = make_dubbing(**variables)
    task = dubbing.submit(small_video, to="pt")

    assert finished(dubbing, task.id, environment | variables) == "done"

    heard = ear.heard()
    assert [key for key, _ in heard] == [f"task.{name}" for name in QUEUES[:5]]
    for key, message in heard:
        assert key == f"task.{message['step']}"
        assert str(uuid.UUID(message["task_id"])) == message["task_id"]
        assert (message["attempt"], message["created_at"][-1]) == (1, "Z")
    assert len({message["trace_id"] for _, message in heard}) == 1
    assert heard[0][1]["payload"] == {
        "source_video_key": f"videos/{task.id}/source.mp4",
        "output_audio_key": f"audios/{task.id}/source.wav",
    }
    assert ear.waiting() == dict.fromkeys(QUEUES, 0)


def test_a_worker_that_dies_while_it_speaks_is_followed_by_another(
    make_dubbing: MakeDubbing,
    environment: dict[str, str],
    variables: dict[str, str],
    small_video: Path,
    control: Control,
) -> None:
    dubbing = make_dubbing(**variables)
    task = dubbing.submit(small_video, to="pt")
    control.fail("tts-delta", "die-once")
    with worker_process(environment | variables) as process:
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    kept = [segment.src_text.split()[0] for segment in dubbing.segments(task.id) if segment.tts_audio_key]
    assert len(kept) >= 2

    assert finished(dubbing, task.id, environment | variables) == "done"

    calls = Counter(control.calls)
    assert {calls[f"tts-{name}"] for name in kept} == {1}
    assert calls["tts-delta"] == 2


def test_a_segment_that_cannot_be_spoken_is_announced_and_can_be_sent_again(
    make_dubbing: MakeDubbing,
    environment: dict[str, str],
    variables: dict[str, str],
    ear: Ear,
    small_video: Path,
    control: Control,
) -> None:
    dubbing = make_dubbing(**variables)
    task = dubbing.submit(small_video, to="pt")
    control.fail("tts-echo", "permanent")

    with worker_process(environment | variables):
        assert dubbing.wait(task.id, timeout=PATIENCE_SECONDS).status == "failed"
        heard = ear.heard_until("task.dlq")
    assert heard["task.tts_compensation"]["payload"]["segment_idx"] == 4
    assert heard["task.dlq"]["original_message"]["step"] == "tts"
    assert "segment 4: tts-echo is broken" in heard["task.dlq"]["failure_reason"]
    assert set(heard["task.dlq"]) == {"original_message", "failed_at", "failure_reason", "attempt"}

    control.mend("tts-echo")
    assert dubbing.requeue_speech(limit=100) == [task.id]
    assert finished(dubbing, task.id, environment | variables) == "done"
    assert [key for key, _ in ear.heard()] == ["task.tts", "task.mux_video"]
    assert set(Counter(call for call in control.calls if call != "tts-echo").values()) == {1}
