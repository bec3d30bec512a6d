"""Remote tasks: what a program in another language does for us is retried, counted, cancelled as any task is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stagepost import App, AppTask, Counts, JobContext, JobFailed, JobState, Worker
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.model.envelope import Answer
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob
from stagepost.model.outcome import Outcome
from stagepost.model.pipeline import RunState
from stagepost.store.sending import sent_jobs
from stagepost.transport.rabbitmq.admin import Depth
from stagepost.worker.answers import outcome_of_answer
from tests.acceptance.conftest import quick_settings
from tests.acceptance.helpers import notes, work, write
from tests.acceptance.remote import Stranger, Words, add_recognise, counted, given_up, resent, until, working
from tests.conformance.bench import DatabaseOnBench
from tests.services.rabbitmq import RabbitmqServer
from tests.services.recognisers import Recogniser

Recognise = AppTask[[str], Words]


@pytest.fixture(scope="module")
def broker(rabbitmq_server: RabbitmqServer) -> Iterator[str]:
    with rabbitmq_server.database() as url:
        yield url


@pytest.fixture
def quick() -> RabbitmqSettings:
    """Names at the broker of a test's own, which takes less time than a virtual host."""
    return RabbitmqSettings(lost_after=0.5, prefix=f"t{new_id()}")


@pytest.fixture
def app(database: DatabaseOnBench, broker: str, quick: RabbitmqSettings) -> Iterator[App]:
    database.empty()
    with database.store.transaction() as connection:
        connection.execute("delete from effect", {})
    settings = quick_settings(database.url)
    app = App(settings=msgspec.structs.replace(settings, transport=broker, rabbitmq=quick))
    yield app
    app.close()


@pytest.fixture
def recognise(app: App) -> Recognise:
    return add_recognise(app)


@pytest.fixture
def stranger(broker: str, quick: RabbitmqSettings) -> Iterator[Stranger]:
    stranger = Stranger(broker, quick)
    yield stranger
    stranger.close()


def state_of(app: App, job_id: str) -> JobState:
    return app.client.job(job_id).state


def is_sent(app: App, number: int) -> bool:
    return len(app.store.run(sent_jobs("recogniser", older=timedelta(0), most=1000))) == number


def test_a_foreign_program_runs_a_task(
    app: App, recognise: Recognise, broker: str, quick: RabbitmqSettings, any_recogniser: Recogniser
) -> None:
    good = [recognise.enqueue(f"audio/{number}") for number in range(20)]
    flaky, broken = recognise.enqueue("flaky/1"), recognise.enqueue("broken/1")

    with any_recogniser.running(broker, quick):
        worker = work(app)

    results = [job.result(timeout=0) for job in good]
    assert results == [{"text": f"words of audio/{n}", "letters": len(f"audio/{n}")} for n in range(20)]
    assert flaky.result(timeout=0)["text"] == "words of flaky/1"
    assert [failure.error for failure in app.client.failures(flaky.id)] == ["the model is busy"]
    with pytest.raises(JobFailed, match="this is no audio"):
        broken.result(timeout=0)
    assert state_of(app, broken.id) is JobState.FAILED
    assert app.client.job(flaky.id).attempt == 2
    assert (counted(worker).settled, resent(worker)) == (23, 0)


def test_batches_pipelines_and_parents_count_what_a_foreign_program_does(
    app: App, recognise: Recognise, broker: str, quick: RabbitmqSettings, recogniser: Recogniser
) -> None:
    @app.task
    def tell(what: str) -> None:
        with app.transaction() as tx:
            write(tx, what)

    @app.task
    def fetch(name: str) -> str:
        return f"flaky/{name}"

    @app.task
    def count(words: Words) -> int:
        return words["letters"]

    @app.task
    def add_up(job: JobContext) -> int:
        return sum(child.result["letters"] for child in job.children(recognise) if child.result)

    @app.task
    def parent(job: JobContext) -> int:
        for number in range(3):
            job.submit(recognise, f"audio/{number}")
        return job.then(add_up)

    dub = app.pipeline("dub")
    fetched = dub.step(fetch, inputs={"name": dub.input("name")})
    recognised = dub.step(recognise, inputs={"audio_key": fetched})
    dub.step(count, inputs={"words": recognised})
    with app.batch("upload", on_complete=tell.job("all done")) as batch:
        batch.add(recognise.item(f"f{n}", f"broken/{n}" if n % 10 == 0 else f"audio/{n}") for n in range(30))
    run = dub.start("one", name="ada")
    family = parent.enqueue()

    with recogniser.running(broker, quick), working(app):
        until(lambda: notes(app), "the batch")
        assert family.result(timeout=60) == 3 * len("audio/0")
        assert run.wait(timeout=60) is RunState.COMPLETED

    assert batch.counts() == Counts(completed=27, failed=3)
    assert notes(app) == ["all done"]
    assert run.result("count") == len("flaky/ada")


def test_an_answer_counts_once_and_strangers_nothing(app: App, recognise: Recognise, stranger: Stranger) -> None:
    garbage: list[Any] = [b"\xff\xfe", b"", b"[]", b"{}", {"task_id": "me", "attempt": 1, "status": "completed"}]
    beyond = {"task_id": new_id(), "attempt": 2**40, "status": "completed"}
    with working(app) as worker:
        first, second = recognise.enqueue("a"), recognise.enqueue("b")
        [one, two] = stranger.take(2)
        for message in [*garbage, beyond]:
            stranger.say(message)
        stranger.answer(one | {"attempt": 2})
        stranger.answer(one | {"task_id": new_id()})
        stranger.answer(one, times=5)
        stranger.answer(two, status="failed", error="busy\0 \U0001f600", times=5)
        [again] = stranger.take()
        stranger.answer(two, times=2)
        stranger.answer(again, extra="unknown fields are passed over")
        assert [first.result(timeout=60), second.result(timeout=60)] == [{"text": "so it is", "letters": 8}] * 2
        until(lambda: sum(msgspec.structs.astuple(counted(worker))) == 6 + 2 + 5 + 5 + 2 + 1, "all to be counted")

    seen = counted(worker)
    assert again["attempt"] == 2
    assert (seen.settled, seen.bad) == (3, 6)
    assert [failure.error for failure in app.client.failures(second.id)] == ["busy\\x00 \U0001f600"]


BAD_RESULTS: list[tuple[object, str]] = [
    ({"text": "no letters"}, "missing required field `letters`"),
    ("words", "does not fit the annotation"),
    (None, "Expected `object`, got `null`"),
    ({"text": "x" * 2_000_000, "letters": 1}, "the limit is"),
    ({"text": "\0", "letters": 1}, "NUL"),
]


def test_a_result_that_does_not_fit_fails_its_job_alone(app: App, recognise: Recognise, stranger: Stranger) -> None:
    with working(app):
        jobs = [recognise.enqueue(f"bad/{number}") for number, _ in enumerate(BAD_RESULTS)]
        good = recognise.enqueue("good")
        requests = {request["task_id"]: request for request in stranger.take(len(jobs) + 1)}
        for job, (result, _) in zip(jobs, BAD_RESULTS, strict=True):
            stranger.answer(requests[job.id], result=result)
        stranger.answer(requests[good.id])
        assert good.result(timeout=60)
        for job, (_, reason) in zip(jobs, BAD_RESULTS, strict=True):
            with pytest.raises(JobFailed, match=reason):
                job.result(timeout=60)

    assert [state_of(app, job.id) for job in jobs] == [JobState.FAILED] * len(jobs)


def test_failures_use_up_the_attempts_of_a_job_which_can_be_retried(
    app: App, recognise: Recognise, stranger: Stranger
) -> None:
    with working(app):
        job = recognise.enqueue("a")
        for attempt in (1, 2, 3):
            [request] = stranger.take()
            assert (request["attempt"], request["payload"]) == (attempt, {"audio_key": "a"})
            stranger.answer(request, status="failed", error="busy")
        until(lambda: state_of(app, job.id) is JobState.DEAD_LETTER, "a dead letter")
        app.client.retry(job.id, actor="ada")
        [request] = stranger.take()
        stranger.answer(request)
        assert job.result(timeout=60)

    assert app.client.job(job.id).attempt == 4


def test_a_cancelled_job_ends_at_once_and_its_answer_is_passed_over(
    app: App, recognise: Recognise, stranger: Stranger
) -> None:
    with working(app) as worker:
        job = recognise.enqueue("a")
        [request] = stranger.take()

        assert app.client.cancel(job.id, actor="ada") is JobState.CANCELLED

        stranger.answer(request)
        until(lambda: counted(worker).ended == 1, "the answer to be counted")

    assert state_of(app, job.id) is JobState.CANCELLED


def test_lost_requests_are_sent_again_as_the_same_attempt(app: App, stranger: Stranger) -> None:
    recognise = add_recognise(app, timeout=timedelta(seconds=1))
    with working(app) as worker:
        jobs = [recognise.enqueue(f"audio/{number}") for number in range(5)]
        until(lambda: is_sent(app, 5), "requests to be sent")
        stranger.purge()

        for request in stranger.take(5):
            assert request["attempt"] == 1
            stranger.answer(request)

        assert all(job.result(timeout=60) for job in jobs)
        assert resent(worker) == 5


def test_a_request_that_is_never_answered_becomes_a_dead_letter(app: App, stranger: Stranger) -> None:
    """A program that acknowledges and keeps silent does not keep a job, or its batch, for ever."""
    recognise = add_recognise(app, timeout=timedelta(seconds=1))
    with working(app) as worker:
        with app.batch("upload") as batch:
            batch.add(recognise.item(key, key) for key in ("swallowed", "answered"))
        for number in range(3):
            for request in stranger.take(1 if number else 2):
                assert request["attempt"] == 1
                if request["payload"]["audio_key"] == "answered":
                    stranger.answer(request)
                else:
                    stranger.swallow(request)
        assert batch.wait(timeout=60) is JobState.COMPLETED_WITH_ERRORS
        assert (resent(worker), given_up(worker)) == (2, 1)

    assert batch.counts() == Counts(completed=1, dead_letter=1)
    [item] = batch.items([JobState.DEAD_LETTER])
    assert "sent 3 times and never answered" in (item.error or "")


def test_a_leader_of_another_app_is_patient_with_programs_it_does_not_know(app: App, stranger: Stranger) -> None:
    recognise = add_recognise(app, timeout=timedelta(minutes=5))
    other = App(settings=app.settings)

    @other.task(queue="default")
    def greet() -> None: ...

    with working(app):
        job = recognise.enqueue("audio/1")
        [request] = stranger.take()
        until(lambda: is_sent(app, 1), "the request to be marked")
    with working(other) as leader:
        until(lambda: "recogniser" in relayed(leader), "the queue to be found")
        age = age_of_oldest(app)
        until(lambda: age() > 2.0, "the request to be old")  # four times lost_after
        before = looks(leader)
        until(lambda: looks(leader) >= before + 2, "the reconciler to look")
        assert resent(leader) == 0
    stranger.answer(request)
    with working(app):
        assert job.result(timeout=60)
    other.close()


def test_requests_are_sent_while_a_worker_without_a_broker_does_the_upkeep(app: App, stranger: Stranger) -> None:
    recognise = add_recognise(app)
    other = App(settings=msgspec.structs.replace(app.settings, transport=None))

    @other.task(queue="default")
    def greet() -> None: ...

    with working(other) as leader:
        until(lambda: leader.leader.is_leading, "it to lead")
        with working(app) as worker:
            job = recognise.enqueue("audio/1")
            [request] = stranger.take()
            assert leader.leader.is_leading
            assert not worker.leader.is_leading
            stranger.answer(request)
            assert job.result(timeout=60)
    other.close()


def test_requests_that_a_slow_program_holds_are_not_sent_again(app: App, stranger: Stranger) -> None:
    """It holds them for much longer than the timeout, but gives a sign of life now and then."""
    recognise = add_recognise(app, timeout=timedelta(seconds=2))
    with working(app) as worker:
        jobs = [recognise.enqueue(f"audio/{number}") for number in range(8)]
        held = stranger.take(8)
        age, signs = age_of_oldest(app), 0
        while age() < 5.0:
            before, signs = looks(worker), signs + 1
            until(lambda: looks(worker) > before, "the reconciler to look")  # noqa: B023 - called at once
            if signs % 3 == 0 and len(held) > 4:
                stranger.answer(held.pop())
            else:
                stranger.say({"task_id": held[0]["task_id"], "attempt": 1, "status": "progress", "progress": 0.5})
        for request in held:
            stranger.answer(request)
        assert all(job.result(timeout=60) for job in jobs)

    assert (resent(worker), counted(worker).settled) == (0, 8)
    assert counted(worker).progress > 3


def test_answers_that_wait_for_us_are_no_reason_to_send_again(app: App, stranger: Stranger) -> None:
    """Our workers were away for longer than the timeout while the program answered."""
    recognise = add_recognise(app, timeout=timedelta(seconds=1))
    with working(app) as worker:
        jobs = [recognise.enqueue(f"audio/{number}") for number in range(8)]
        requests = stranger.take(8)
        until(lambda: looks(worker) >= 2, "the reconciler to look")
    age = age_of_oldest(app)
    for request in requests:
        stranger.answer(request)
    until(lambda: age() > 2.0, "requests to be old")

    with working(app) as worker:
        assert all(job.result(timeout=60) for job in jobs)
        done = looks(worker)
        until(lambda: looks(worker) >= done + 2, "the reconciler to look")

    assert (resent(worker), counted(worker).settled) == (0, 8)


def test_a_queue_is_not_empty_while_answers_of_it_wait(app: App, recognise: Recognise, stranger: Stranger) -> None:
    with working(app):
        recognise.enqueue("a")
        [request] = stranger.take()
    stranger.answer(request)

    broker = Worker(app).broker
    assert broker is not None

    async def look() -> None:
        await broker.leader.run_once()
        await broker.reconciler.run_once()

    asyncio.run(look())
    assert broker.reconciler.looks["recogniser"].depth == Depth(ready=1, consumers=0)


def test_an_answer_that_cannot_be_stored_fails_its_job_alone(
    app: App, recognise: Recognise, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_bug(answer: Answer, job: LeasedJob, task: Any) -> Outcome:
        if "bug" in job.payload:
            raise ZeroDivisionError("a bug")
        return outcome_of_answer(answer, job, task)

    monkeypatch.setattr("stagepost.worker.answers.outcome_of_answer", with_a_bug)
    with working(app):
        jobs = [recognise.enqueue(key) for key in ("a", "bug", "b")]
        for request in stranger.take(3):
            stranger.answer(request)
        assert all(job.result(timeout=60) for job in (jobs[0], jobs[2]))
        with pytest.raises(JobFailed, match="its answer could not be stored: ZeroDivisionError"):
            jobs[1].result(timeout=60)


def test_an_answer_to_a_job_of_another_app_finds_its_way(
    app: App, recognise: Recognise, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take from one queue of answers; the one that does not know the task gives its answer back."""
    monkeypatch.setattr("stagepost.worker.answers.HELD_SECONDS", 0.2)
    named = msgspec.structs.replace(app.settings.rabbitmq, queues=["recogniser", "translator"])
    app.settings = msgspec.structs.replace(app.settings, rabbitmq=named)  # whoever leads sends the jobs of both
    other = App(settings=app.settings)

    @other.task(name="translate", queue="translator", remote=True)
    def translate(text: str) -> str:
        raise AssertionError("never run here")

    with working(app) as first, working(other) as second:
        jobs = [recognise.enqueue(f"audio/{number}") for number in range(10)]
        for request in stranger.take(10):
            stranger.answer(request)
        assert all(job.result(timeout=60) for job in jobs)

    other.close()
    assert (counted(first).settled, counted(second).settled) == (10, 0)
    assert counted(second).strange > 0


def relayed(worker: Worker) -> list[str]:
    """Which queues it publishes for."""
    assert worker.broker is not None
    return worker.broker.relay.queues


def looks(worker: Any) -> int:
    """How often the reconciler has looked."""
    return int(worker.broker.reconciler.passes)


def age_of_oldest(app: App) -> Callable[[], float]:
    def age() -> float:
        [job, *_] = app.store.run(sent_jobs("recogniser", older=timedelta(0), most=1))
        return job.age_us / 1e6

    return age


def test_the_request_is_the_documented_json(app: App, recognise: Recognise, stranger: Stranger) -> None:
    with working(app):
        job = recognise.enqueue("a")
        [request] = stranger.take()
        stranger.answer(request)
        job.result(timeout=60)

    created_at, trace_id = request.pop("created_at"), request.pop("trace_id")
    assert request == {"task_id": job.id, "step": "recognise", "attempt": 1, "payload": {"audio_key": "a"}}
    assert created_at.endswith("Z")
    assert json.dumps(trace_id)
