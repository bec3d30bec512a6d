"""Remote tasks: work of a program in another language is retried, counted and cancelled like any task."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from stagepost import App, Counts, JobContext, JobState, Worker
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.errors import JobFailed
from stagepost.model.envelope import Answer
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob
from stagepost.model.outcome import Outcome
from stagepost.model.pipeline import RunState
from stagepost.worker.answers import outcome_of_answer
from tests.acceptance.helpers import notes, work, write
from tests.acceptance.remote import Recognise, Stranger, Words, counted, resent, until, working
from tests.depth import quickly_on
from tests.services.recognisers import Recogniser

pytestmark = quickly_on("postgres", fixture="database")


def state_of(app: App, job_id: str) -> JobState:
    return app.client.job(job_id).state


def takes_answers(worker: Worker) -> bool:
    assert worker.parts.broker is not None
    assert worker.parts.broker.answers is not None
    return worker.parts.broker.answers.consumer.trouble is None


def test_an_external_program_runs_a_task(
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


def test_batches_pipelines_and_parents_count_what_an_external_program_does(
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


def test_an_answer_counts_once_and_unknown_ones_are_ignored(app: App, recognise: Recognise, stranger: Stranger) -> None:
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
    (None, "the result is None, which does not fit the annotation `Words`"),
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
    assert app.counts.retries == {recognise.name: 2}
    assert app.counts.dead_letters == {recognise.name: 1}


def test_a_cancelled_job_ends_at_once_and_its_answer_is_ignored(
    app: App, recognise: Recognise, stranger: Stranger
) -> None:
    with working(app) as worker:
        job = recognise.enqueue("a")
        [request] = stranger.take()

        assert app.client.cancel(job.id, actor="ada") is JobState.CANCELLED

        stranger.answer(request)
        until(lambda: counted(worker).ended == 1, "the answer to be counted")

    assert state_of(app, job.id) is JobState.CANCELLED


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
    app.settings = msgspec.structs.replace(app.settings, rabbitmq=named)  # the leader sends the jobs of both
    other = App(settings=app.settings)

    @other.task(name="translate", queue="translator", remote=True)
    def translate(text: str) -> str:
        raise AssertionError("never run here")

    with working(app) as first, working(other) as second:
        until(lambda: takes_answers(first) and takes_answers(second), "both to take answers")
        jobs = [recognise.enqueue(f"audio/{number}") for number in range(10)]
        for request in stranger.take(10):
            stranger.answer(request)
        assert all(job.result(timeout=60) for job in jobs)

    other.close()
    assert (counted(first).settled, counted(second).settled) == (10, 0)
    assert counted(second).strange > 0


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
