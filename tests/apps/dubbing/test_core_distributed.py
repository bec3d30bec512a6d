"""PostgreSQL, RabbitMQ and S3: the documents' queues and messages, workers that die, segments that are compensated."""

from __future__ import annotations

import signal
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from stagepost_dubbing import Dubbing
from tests.apps.dubbing.broker import QUEUES, Ear
from tests.apps.dubbing.conftest import MakeDubbing
from tests.apps.dubbing.stand_ins import Control
from tests.apps.dubbing.workers import PATIENCE_SECONDS, end_leases, facts, statuses, wait_until, worker_process


def finished(dubbing: Dubbing, task_id: str, environment: dict[str, str], *, processes: int = 2) -> str:
    """How a task ends that these workers work on; those before them are gone.

    They are told to stop: if they were killed, messages that they have not acknowledged yet would come back.
    """
    end_leases(dubbing)
    with ExitStack() as stack:
        started = [stack.enter_context(worker_process(environment)) for _ in range(processes)]
        status = dubbing.wait(task_id, timeout=PATIENCE_SECONDS).status
        for process in started:
            process.terminate()
        assert [process.wait(PATIENCE_SECONDS) for process in started] == [0] * processes
    return status


def test_messages_at_the_broker_are_those_of_the_document(
    make_dubbing: MakeDubbing, environment: dict[str, str], distributed: dict[str, str], ear: Ear, small_video: Path
) -> None:
    dubbing = make_dubbing(**distributed)
    task = dubbing.submit(small_video, to="pt")

    assert finished(dubbing, task.id, environment | distributed) == "done"

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


@pytest.mark.prove
def test_messages_in_another_order_and_of_steps_long_done_change_nothing(
    make_dubbing: MakeDubbing,
    environment: dict[str, str],
    distributed: dict[str, str],
    ear: Ear,
    small_video: Path,
    control: Control,
    undisturbed: object,
) -> None:
    distributed |= {"DUBBING_TRANSLATE_MESSAGE_SIZE": "1"}
    dubbing = make_dubbing(**distributed)
    task = dubbing.submit(small_video, to="pt")
    with worker_process(environment | distributed, queues="extract_audio,asr,dubbing"):
        old = ear.taken(ear.queue, 2 + 5)
        parts = sorted(ear.taken("task.translate", 5), key=lambda part: part.message["payload"]["segment_ids"])
    end_leases(dubbing)
    ear.send(part for part in reversed(parts) for _ in range(2))  # later segments first, and each twice
    control.hold("translate-alpha")

    with worker_process(environment | distributed), worker_process(environment | distributed):
        # One of them is at the first segment until all others are done, and its message has come twice by then.
        wait_until(lambda: [bool(segment.mt_text) for segment in dubbing.segments(task.id)] == [False] + 4 * [True])
        control.release("translate-alpha")
        assert dubbing.wait(task.id, timeout=PATIENCE_SECONDS).status == "done"

    calls, attempts = control.calls, statuses(dubbing, task.id)
    assert set(Counter(calls).values()) == {1}
    assert facts(dubbing, task.id) == undisturbed

    old += ear.taken(ear.queue, 2)
    dubbing.edit(task.id, 2, "ZULU nine")
    ear.send(reversed(old))  # before those of the edited video, at every queue

    assert finished(dubbing, task.id, environment | distributed, processes=1) == "done"

    assert control.calls == [*calls, "tts-zulu"]
    done = [(step, number, "stale" if step in {"tts", "mux_video"} else status) for step, number, status in attempts]
    assert sorted(statuses(dubbing, task.id)) == sorted([*done, ("tts", 2, "succeeded"), ("mux_video", 2, "succeeded")])
    assert b"ZULU nine" in dubbing.services.objects.read(f"outputs/{task.id}/target.srt")
    assert ear.waiting()["dlq"] == 0


@pytest.mark.prove
def test_a_worker_that_dies_while_it_speaks_is_followed_by_another(
    make_dubbing: MakeDubbing,
    environment: dict[str, str],
    distributed: dict[str, str],
    small_video: Path,
    control: Control,
) -> None:
    dubbing = make_dubbing(**distributed)
    task = dubbing.submit(small_video, to="pt")
    control.fail("tts-delta", "die-once")
    with worker_process(environment | distributed) as process:
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    end_leases(dubbing)
    kept = [segment.src_text.split()[0] for segment in dubbing.segments(task.id) if segment.tts_audio_key]
    assert len(kept) >= 2

    assert finished(dubbing, task.id, environment | distributed) == "done"

    calls = Counter(control.calls)
    assert {calls[f"tts-{name}"] for name in kept} == {1}
    assert calls["tts-delta"] == 2


def test_a_segment_that_cannot_be_spoken_is_announced_and_can_be_sent_again(
    make_dubbing: MakeDubbing,
    environment: dict[str, str],
    distributed: dict[str, str],
    ear: Ear,
    small_video: Path,
    control: Control,
) -> None:
    dubbing = make_dubbing(**distributed)
    task = dubbing.submit(small_video, to="pt")
    control.fail("tts-echo", "permanent")

    with worker_process(environment | distributed):
        assert dubbing.wait(task.id, timeout=PATIENCE_SECONDS).status == "failed"
        heard = ear.heard_until("task.tts_compensation", "task.dlq")
    assert heard["task.tts_compensation"]["payload"]["segment_idx"] == 4
    assert heard["task.dlq"]["original_message"]["step"] == "tts"
    assert "segment 4: tts-echo is broken" in heard["task.dlq"]["failure_reason"]
    assert set(heard["task.dlq"]) == {"original_message", "failed_at", "failure_reason", "attempt"}

    control.mend("tts-echo")
    assert dubbing.requeue_speech(limit=100) == [task.id]
    assert finished(dubbing, task.id, environment | distributed) == "done"
    told_again = {"task.dlq", "task.tts_compensation"}  # if it was killed before it noted that they are sent
    assert [key for key, _ in ear.heard() if key not in told_again] == ["task.tts", "task.mux_video"]
    assert set(Counter(call for call in control.calls if call != "tts-echo").values()) == {1}
