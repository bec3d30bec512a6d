"""Progress that external programs report before they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagepost import App, Worker
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.transport.rabbitmq.consumed_queue import Delivery
from tests.acceptance.helpers import AT_ONCE
from tests.acceptance.remote import Recognise, Stranger, Words, counted, until, working
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.samples import held_by_another
from tests.depth import quickly_on
from tests.services.recognisers import Recogniser

pytestmark = quickly_on("mariadb", fixture="database")


class Heard(msgspec.Struct):
    """How far a recogniser is."""

    seconds: int
    of: int


def test_a_programs_report_is_the_progress_of_its_job(
    app: App, stranger: Stranger, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="recognise", queue="recogniser", remote=True, retry=AT_ONCE, progress=Heard)
    def recognise(audio_key: str) -> Words:
        raise AssertionError("never run here")

    def report(request: dict[str, Any], **facts: Any) -> None:
        named = {"task_id": request["task_id"], "attempt": request["attempt"]}
        stranger.say({**named, "status": "progress"} | facts)

    job = recognise.enqueue("audio/1")
    with working(app) as worker:
        [request] = stranger.take()
        report(request, progress={"seconds": 1, "of": 60})
        until(lambda: job.progress() == Heard(1, 60), "the report")

        report(request)
        report(request, progress={"seconds": 2, "of": 60}, attempt=2)
        report(request, progress="half of it")
        report(request, progress="most of it")
        until(lambda: counted(worker).progress == 5, "reports that tell nothing")
        assert job.progress() == Heard(1, 60)
        assert caplog.text.count("a progress report of its program is ignored: progress of type str does not fit") == 1

        stranger.answer(request, status="failed", error="busy")
        [again] = stranger.take()
        assert (again["attempt"], job.progress()) == (2, None)
        report(request, progress={"seconds": 59, "of": 60})
        report(again, progress={"seconds": 3, "of": 60})
        until(lambda: job.progress() == Heard(3, 60), "the report on the second attempt")
        stranger.answer(again)
        assert job.result(timeout=60)

    assert job.progress() is None


def test_a_report_that_comes_while_its_job_is_locked_is_not_lost(
    app: App, recognise: Recognise, stranger: Stranger, database: DatabaseOnBench
) -> None:
    """The relay that sent the request holds it until it is marked as sent."""
    job = recognise.enqueue("audio/1")
    with working(app) as worker:
        [request] = stranger.take()
        passes = passes_of(worker)
        with held_by_another(Bench(database, Colour.SYNC), job.id):
            stranger.report(request)
            until(lambda: passes, "the report to be passed over")
            assert (job.progress(), counted(worker).progress) == (None, 0)

        until(lambda: counted(worker).progress == 1, "the report")
        assert job.progress() == 0.5
        stranger.answer(request)
        assert job.result(timeout=60)


def passes_of(worker: Worker) -> list[int]:
    """How many messages each pass from now on was given."""
    assert worker.parts.broker is not None
    assert worker.parts.broker.answers is not None
    passes: list[int] = []
    take_in = worker.parts.broker.answers._take_in

    async def noting(deliveries: list[Delivery]) -> int:
        settled = await take_in(deliveries)
        passes.append(len(deliveries))
        return settled

    worker.parts.broker.answers._take_in = noting  # type: ignore[method-assign]
    return passes


def test_the_program_in_javascript_reports_how_far_it_is(
    app: App, recognise: Recognise, broker: str, quick: RabbitmqSettings, node_program: list[str], tmp_path: Path
) -> None:
    job = recognise.enqueue("long/1")

    with Recogniser(node_program, tmp_path / "log").running(broker, quick), working(app) as worker:
        assert job.result(timeout=60)["text"] == "words of long/1"

    assert (counted(worker).progress, counted(worker).bad) == (3, 0)
