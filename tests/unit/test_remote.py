"""Remote tasks: how they are declared, what answers mean, and when requests are lost."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any, Literal

import msgspec
import pytest

from stagepost import App, JobContext, RateLimit, RetryPolicy, Settings, Worker
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.errors import BadMessage, ConfigurationError, TaskError
from stagepost.model.envelope import Answer, decode_answer
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob
from stagepost.model.options import REMOTE_TIMEOUT
from stagepost.model.outcome import Completed, Failed, Outcome, Refused
from stagepost.store.queue_observations import QueueObservation
from stagepost.transport.rabbitmq.admin import Depth
from stagepost.upkeep.reconciler import lost_for
from stagepost.worker.answers import outcome_of_answer

BROKER = "amqp://localhost"


def app_with(**settings: Any) -> App:
    return App(settings=Settings(database_url="sqlite:///:memory:", **settings))


def recognise(audio_key: str) -> dict[str, int]:
    raise AssertionError("never run")


def test_the_body_of_a_remote_task_is_never_run() -> None:
    task = app_with().task(queue="recogniser", remote=True)(recognise)

    with pytest.raises(TaskError, match=r"recognise is remote: another program runs it\. Enqueue it"):
        task("a")
    assert task.job("a").payload == '{"audio_key":"a"}'
    assert task.options.timeout == REMOTE_TIMEOUT


def test_the_body_of_an_async_remote_task_is_never_run() -> None:
    @app_with().task(queue="recogniser", remote=True)
    async def recognise(audio_key: str) -> str:
        raise AssertionError(audio_key)

    with pytest.raises(TaskError, match="is remote"):
        _ = recognise("a")


def test_remote_tasks_have_queues_of_their_own() -> None:
    for first, second in ((True, False), (False, True)):
        app = app_with()
        app.task(name="one", queue="recogniser", remote=first)(recognise)
        with pytest.raises(ConfigurationError, match="Give remote tasks a queue of their own"):
            app.task(name="two", queue="recogniser", remote=second)(recognise)


def test_jobs_do_not_go_to_queues_of_the_other_kind() -> None:
    app = app_with()
    remote = app.task(name="remote", queue="recogniser", remote=True)(recognise)
    ours = app.task(name="ours")(recognise)

    with pytest.raises(ConfigurationError, match="its program takes jobs from queue 'recogniser'"):
        remote.using(queue="default").job("a")
    with pytest.raises(ConfigurationError, match="'recogniser' is for remote tasks"):
        ours.using(queue="recogniser")
    assert remote.using(queue="recogniser", priority=3).job("a").priority == 3


@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_arguments_that_may_have_been_sent_are_not_replaced(on_conflict: Literal["replace", "debounce"]) -> None:
    task = app_with().task(queue="recogniser", remote=True)(recognise)

    with pytest.raises(ConfigurationError, match="may already be sent"):
        task.using(unique_key="a", on_conflict=on_conflict).job("a")


@pytest.mark.parametrize("option", [{"pool": "process"}, {"rate_limit": RateLimit("model", per_second=1, burst=1)}])
def test_options_that_need_a_worker_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(option))} does not apply to a remote task"):
        app_with().task(queue="recogniser", remote=True, **option)


def test_a_remote_task_has_no_context() -> None:
    def with_context(job: JobContext, audio_key: str) -> None: ...

    with pytest.raises(TaskError, match="no JobContext"):
        app_with().task(queue="recogniser", remote=True)(with_context)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({}, "Set `transport`"),
        ({"transport": BROKER, "rabbitmq": RabbitmqSettings(queues=["mail"])}, "Add it to `queues` in"),
    ],
)
def test_a_worker_requires_a_broker_for_remote_tasks(settings: dict[str, Any], remedy: str) -> None:
    app = app_with(**settings)
    app.task(queue="recogniser", remote=True)(recognise)

    with pytest.raises(ConfigurationError, match=remedy):
        Worker(app)


def test_our_workers_take_nothing_from_the_queue_of_a_remote_task() -> None:
    app = app_with(transport=BROKER)
    app.task(queue="recogniser", remote=True)(recognise)
    app.task(name="ours")(recognise)

    worker = Worker(app, queues=["default", "recogniser"])

    assert worker.queues == ["default"]
    assert worker.parts.broker is not None
    assert worker.parts.broker.queues == ["default", "recogniser"]
    assert worker.parts.broker.receiver is not None
    assert list(worker.parts.broker.receiver._names.values()) == ["default"]
    app.close()


def outcome_of(**answer: Any) -> Outcome:
    retry = RetryPolicy(first_delay=timedelta(seconds=4), jitter=0)
    task = app_with().task(queue="recogniser", remote=True, retry=retry)(recognise)
    job = LeasedJob(new_id(), "r", "q", 3, 2, 0, 5, 0, 0, 0, "{}", None, None, None, "remote")
    raw = msgspec.json.encode({"task_id": job.id, "attempt": 3, "status": "completed", **answer})
    return outcome_of_answer(decode_answer(raw), job, task)


def test_an_answer_becomes_the_outcome_it_states() -> None:
    assert outcome_of(result={"letters": 3}) == Completed('{"letters":3}')
    assert outcome_of(status="failed", error="busy") == Failed("busy", timedelta(seconds=16))
    assert outcome_of(status="failed", error="no audio", retryable=False) == Refused("no audio")
    assert outcome_of(status="failed") == Failed("the program gave no reason", timedelta(seconds=16))


@pytest.mark.parametrize("result", [{"letters": "three"}, [], None, "", {"letters": 1e300}])
def test_a_result_that_does_not_fit_is_refused(result: object) -> None:
    outcome = outcome_of(result=result)

    assert isinstance(outcome, Refused)
    assert outcome.error.startswith("the program's answer cannot be used")


def test_any_bytes_are_an_answer_or_refused_as_a_bad_message() -> None:
    random = Random(5)  # noqa: S311 - repeatable, not secret
    good = msgspec.json.encode({"task_id": new_id(), "attempt": 1, "status": "completed", "result": {"letters": 1}})
    for _ in range(2_000):
        body = bytearray(good)
        for _ in range(random.randint(1, 4)):
            body[random.randrange(len(body))] = random.randrange(256)
        try:
            answer = decode_answer(bytes(body[: random.randint(1, len(body))] if random.random() < 0.3 else body))
        except BadMessage:
            continue
        assert isinstance(answer, Answer)
        job = LeasedJob(str(answer.task_id), "r", "q", 1, 0, 0, 5, 0, 0, 0, "{}", None, None, None, "remote")
        task = app_with().task(queue="recogniser", remote=True)(recognise)
        assert isinstance(outcome_of_answer(answer, job, task), Completed | Failed | Refused)


SECOND = 1_000_000
SETTINGS = RabbitmqSettings(lost_after_seconds=15, quiet_time_seconds=600)


@pytest.mark.parametrize(
    ("depth", "empty_for", "idle_for", "lost"),
    [
        (Depth(0, 1), 301, 301, True),
        (Depth(0, 1), 301, None, True),
        (Depth(0, 1), 299, 301, False),
        (Depth(0, 1), 301, 299, False),
        (Depth(0, 1), None, 301, False),
        (Depth(1, 0), 301, 301, False),
        (None, 301, 301, False),
        (None, None, 601, True),
    ],
)
def test_requests_are_lost_after_a_silence_that_is_longer_than_the_timeout(
    depth: Depth | None, empty_for: int | None, idle_for: int | None, lost: bool
) -> None:
    observation = QueueObservation(
        empty_for_us=None if empty_for is None else empty_for * SECOND,
        idle_for_us=None if idle_for is None else idle_for * SECOND,
        patience_us=300 * SECOND,
    )

    found = lost_for(depth, observation, SETTINGS)

    assert (found is not None) is lost
    assert found in {None, timedelta(minutes=5), timedelta(minutes=10)}
