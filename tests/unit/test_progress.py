"""Progress on its way to the store: written together with leases, and sent from a handler's process."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest

from stagepost import App, JobContext
from stagepost.client.asyncapi import asyncapi_of
from stagepost.client.running import RunningAttempt
from stagepost.clock import SystemClock
from stagepost.errors import PayloadError, PayloadTooLarge
from stagepost.model.job import LeasedJob
from stagepost.model.outcome import Completed
from stagepost.model.results import check_progress, decode_progress, encode_progress
from stagepost.worker import process_main
from stagepost.worker.lease_keeper import MOST_BYTES, newest
from stagepost.worker.leased_attempts import LeasedAttempt
from stagepost.worker.process_main import ReplySender
from stagepost.worker.processes import Reply, Report, read_frame


class Rows(msgspec.Struct):
    """Some progress."""

    done: int
    of: int


app = App("sqlite://")


@app.task
def load() -> None: ...


def a_run(number: int = 1) -> RunningAttempt:
    job = LeasedJob(f"job-{number}", load.name, "default", 1, 0, 0, 5, 0, 0, 0, "{}", None, None, None, "worker-a")
    return RunningAttempt(job, load, SystemClock())


def a_flight(number: int, *, lease_ends: float = 30.0) -> LeasedAttempt:
    running = a_run(number)
    return LeasedAttempt(running.job, lease_ends, running)


def reporting(attempt: LeasedAttempt, progress: Any) -> LeasedAttempt:
    assert attempt.running is not None
    JobContext(attempt.running).report(progress)
    return attempt


def test_only_new_progress_is_written() -> None:
    waiting, silent, written = LeasedAttempt(a_run(1).job, 30.0), a_flight(2), reporting(a_flight(3), 5)
    written.written = written.unwritten
    told = reporting(reporting(a_flight(4), 1), 2)

    assert newest([waiting, silent, written, told]) == {told: "2"}

    told.written = "2"
    assert newest([reporting(told, 2)]) == {}
    assert newest([reporting(told, 3)]) == {told: "3"}


def test_progress_that_does_not_fit_is_written_first_the_next_time() -> None:
    size = 10_000
    attempts = [reporting(a_flight(number), "x" * (size - 2)) for number in range(MOST_BYTES // size + 3)]

    first = newest(attempts)
    assert list(first) == attempts[:-3]

    for attempt in first:
        attempt.written, attempt.lease_ends = first[attempt], 31.0
        reporting(attempt, "y" * (size - 2))
    assert list(newest(attempts)) == [*attempts[-3:], *attempts[:-6]]


def test_progress_is_sent_while_a_job_runs_and_never_after_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_main, "REPORT_SECONDS", 0)
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as pipe, os.fdopen(theirs, "wb") as output:
        sender = ReplySender(output)
        sender.start()

        def told() -> Report | Reply:
            return msgspec.json.decode(read_frame(pipe), type=Report | Reply)

        runs, reply = (a_run(1), a_run(2)), Reply(Completed(None))
        first, second = map(JobContext, runs)
        sender.follow(runs[0])
        first.report(1)
        assert told() == Report("1")
        sender.reply(reply)
        first.report(2)  # by a thread that the handler left behind
        assert told() == reply
        sender.follow(runs[1])
        first.report(3)
        second.report(4)
        assert told() == Report("4")
        sender.reply(reply)  # it is silent when the pipe is closed


def test_progress_is_read_as_the_type_that_was_declared() -> None:
    assert decode_progress(encode_progress(Rows(1, 2), annotation=Rows), Rows) == Rows(1, 2)
    assert decode_progress(encode_progress({"done": 1, "of": 2}, annotation=Rows), Rows) == Rows(1, 2)
    assert decode_progress('{"done":1}', dict[str, int]) == {"done": 1}
    assert decode_progress(None, Rows) is None
    with pytest.raises(PayloadError, match="stored progress does not fit the declared type `Rows`"):
        decode_progress('{"done":1}', Rows)


deep: list[Any] = []
for _ in range(40):
    deep = [deep]


@pytest.mark.parametrize("bad", [{"a": "\0"}, float("nan"), 2**64, deep])
def test_progress_must_be_storable_in_every_database(bad: Any) -> None:
    with pytest.raises(PayloadError, match="the progress "):
        encode_progress(bad, annotation=Any)


def test_progress_from_another_program_is_checked_like_a_handlers() -> None:
    assert check_progress(b'{ "done": 1, "of": 2 }', annotation=Rows) == '{"done":1,"of":2}'
    assert check_progress(b" null ", annotation=Rows) is None
    assert check_progress(b'"' + b"x" * 10_238 + b'"', annotation=Any) is not None
    with pytest.raises(PayloadTooLarge, match="10,241 bytes"):
        check_progress(b'"' + b"x" * 10_239 + b'"', annotation=Any)
    with pytest.raises(PayloadError, match="does not fit the declared type `Rows`"):
        check_progress(b"0.5", annotation=Rows)
    with pytest.raises(PayloadError, match="cannot be read"):
        check_progress(b"\xff", annotation=Any)


def test_the_contract_says_what_a_program_may_report() -> None:
    app = App("sqlite://", transport="amqp://guest@localhost/")

    @app.task(name="listen", queue="ears", remote=True, progress=Rows)
    def listen(progress: str) -> int:
        raise AssertionError("never run here")

    messages = asyncapi_of(app)["components"]["messages"]
    asked, answered = (messages[f"listen.{kind}"]["payload"]["properties"] for kind in ("request", "answer"))
    assert asked["payload"]["properties"] == {"progress": {"type": "string"}}
    assert (answered["result"], answered["progress"]) == ({"type": "integer"}, {"$ref": "#/components/schemas/Rows"})
