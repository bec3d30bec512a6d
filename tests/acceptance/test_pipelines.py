"""Pipelines as users see them: declared, started, run by real workers, inspected, retried and cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from stagepost import App, JobContext, Permanent, Worker, traced
from stagepost.client.pipelines import Pipeline
from stagepost.errors import RunError, WaitTimeout
from stagepost.model.pipeline import RunState, StepState
from stagepost.testing import manual
from tests.acceptance.helpers import LIMIT, notes, work, work_async, write


@dataclass
class Segment:
    start: float
    text: str


class Dub:
    """Document 002's chain; counts how often each task ran."""

    def __init__(self, app: App) -> None:
        self.ran: Counter[str] = Counter()
        self.broken = ""
        """A text that cannot be spoken."""

        @app.task
        def extract_audio(video: str) -> str:
            self.ran["extract_audio"] += 1
            return f"{video}.wav"

        @app.task
        async def asr(audio: str, language: str) -> list[Segment]:
            self.ran["asr"] += 1
            return [Segment(at / 2, f"{language} {audio} {at}") for at in range(3)]

        @app.task
        def translate(segment: Segment, target: str) -> Segment:
            self.ran["translate"] += 1
            return Segment(segment.start, f"{target}: {segment.text}")

        @app.task
        def tts(job: JobContext, segment: Segment) -> str:
            self.ran["tts"] += 1
            if segment.text.endswith(self.broken or "\n"):
                raise Permanent("cannot be spoken")
            return f"{segment.start}.mp3"

        @app.task
        def mux_video(video: str, parts: list[str]) -> str:
            self.ran["mux_video"] += 1
            return f"{video}+{'+'.join(parts)}"

        self.pipeline = dub = app.pipeline("dub")
        audio = dub.step(extract_audio, inputs={"video": dub.input("video")})
        heard = dub.step(asr, inputs={"audio": audio, "language": dub.input("language", default="en")})
        said = dub.step(translate, each={"segment": heard}, inputs={"target": "de"})
        spoken = dub.step(tts, each={"segment": said})
        dub.step(mux_video, inputs={"video": dub.input("video"), "parts": spoken})


def test_a_video_is_dubbed(app: App) -> None:
    dub = Dub(app)

    run = dub.pipeline.start("video:7", video="v")
    work(app)

    assert run.wait(timeout=0) is RunState.COMPLETED
    assert run.result("mux_video") == "v+0.0.mp3+0.5.mp3+1.0.mp3"
    assert run.result("translate")[1] == Segment(0.5, "de: en v.wav 1")
    assert dub.ran == {"extract_audio": 1, "asr": 1, "translate": 3, "tts": 3, "mux_video": 1}
    again = dub.pipeline.start("video:7", video="v")
    assert (run.is_new, again.is_new, again.id) == (True, False, run.id)
    found = dub.pipeline.find("video:7")
    assert found is not None
    assert (found.id, found.state()) == (run.id, RunState.COMPLETED)
    assert dub.pipeline.find("video:8") is None
    assert [one.id for one in dub.pipeline.runs()] == [run.id]


def test_a_video_is_dubbed_from_async_code(app: App) -> None:
    dub = Dub(app)

    async def main() -> None:
        run = await dub.pipeline.start_async("video:7", video="v", language="fr")
        await work_async(app)
        assert await run.wait_async(timeout=LIMIT) is RunState.COMPLETED
        assert await run.result_async("extract_audio") == "v.wav"
        view = await run.graph_async()
        assert [step.state for step in view.steps] == [StepState.COMPLETED] * 5
        found = await dub.pipeline.find_async("video:7")
        assert found is not None
        assert [one.id for one in await dub.pipeline.runs_async()] == [found.id]
        other = await dub.pipeline.start_async(video="w")
        await other.cancel_async()
        assert await other.wait_async(timeout=LIMIT) is RunState.CANCELLED
        assert await other.retry_async() is RunState.RUNNING

    asyncio.run(main())


def test_a_run_exists_with_the_rows_of_the_transaction_that_started_it(app: App) -> None:
    dub = Dub(app)

    def roll_back() -> None:
        with app.transaction() as tx:
            write(tx, "lost")
            dub.pipeline.start("lost", tx=tx, video="v")
            raise RuntimeError("rolled back")

    with pytest.raises(RuntimeError, match="rolled back"):
        roll_back()
    with app.transaction() as tx:
        write(tx, "kept")
        run = dub.pipeline.start("kept", tx=tx, video="v")
        assert dub.pipeline.find("kept") is None or app.store.dialect.name == "sqlite"

    work(app)

    assert notes(app) == ["kept"]
    assert dub.pipeline.find("lost") is None
    assert run.wait(timeout=0) is RunState.COMPLETED


def test_a_failed_run_is_retried_from_where_it_failed(app: App) -> None:
    dub = Dub(app)
    dub.broken = " 1"
    run = dub.pipeline.start(video="v")
    work(app)
    assert run.wait(timeout=0) is RunState.FAILED
    with pytest.raises(
        RunError, match=r"step 'tts' is failed: 1 of 3 jobs failed, most of them with: .*cannot be spoken"
    ):
        run.result("tts")
    assert [step.state for step in run.graph().steps][-2:] == [StepState.FAILED, StepState.SKIPPED]
    dub.ran.clear()
    dub.broken = ""

    assert run.retry() is RunState.RUNNING
    work(app)

    assert run.wait(timeout=0) is RunState.COMPLETED
    assert dub.ran == {"tts": 1, "mux_video": 1}
    assert run.result("mux_video") == "v+0.0.mp3+0.5.mp3+1.0.mp3"


@pytest.mark.usefixtures("quick_renewals")
def test_a_run_is_cancelled_with_the_jobs_that_run_and_wait(app: App) -> None:
    running, ran = threading.Event(), []

    @app.task
    def slow(job: JobContext, number: int) -> None:
        running.set()
        while True:
            job.raise_if_cancelled()
            time.sleep(0.005)

    @app.task
    def never() -> None:
        ran.append("never")

    pipeline = app.pipeline("slow")
    first = pipeline.step(slow, each={"number": list(range(20))})
    first >> pipeline.step(never)
    run = pipeline.start()

    async def main() -> None:
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        assert await asyncio.to_thread(running.wait, LIMIT)
        await run.cancel_async()
        assert await run.wait_async(timeout=LIMIT) is RunState.CANCELLED
        worker.stop()
        await working

    asyncio.run(main())

    assert not ran
    assert {step.state for step in run.graph().steps} == {StepState.CANCELLED}


def test_the_ids_of_a_request_travel_through_all_steps(app: App) -> None:
    seen: list[Any] = []

    @app.task
    def first(job: JobContext) -> None:
        seen.append(job.trace.trace_id)

    @app.task
    def second(job: JobContext) -> None:
        seen.append(job.trace.trace_id)

    pipeline = app.pipeline("traced")
    pipeline.step(first) >> pipeline.step(second)
    with traced(trace_id="4bf9"):
        pipeline.start()

    work(app)

    assert seen == ["4bf9", "4bf9"]


def test_the_completion_task_runs_at_the_end(app: App) -> None:
    told: list[tuple[str, str]] = []

    @app.task
    def tell(run_id: str, state: str) -> None:
        told.append((run_id, state))

    @app.task
    def fail() -> None:
        raise Permanent("no")

    pipeline = app.pipeline("told", on_complete=tell)
    pipeline.step(fail)
    run = pipeline.start()

    work(app)

    assert told == [(run.id, "failed")]


def test_a_run_waits_for_a_worker_that_knows_its_tasks(app: App) -> None:
    dub = Dub(app)
    run = dub.pipeline.start(video="v")
    stranger = App(settings=app.settings)

    @stranger.task
    def other() -> None: ...

    work(stranger)
    stranger.close()

    with pytest.raises(WaitTimeout, match=f"run {run.id} did not end"):
        run.wait(timeout=0)
    work(app)
    assert run.wait(timeout=0) is RunState.COMPLETED


def test_steps_respect_the_limit_of_their_task(app: App) -> None:
    inside, most, two_run = Counter[str](), Counter[str](), asyncio.Event()

    @app.task(max_running=2)
    async def count(x: int) -> int:
        inside["all"] += 1
        most["all"] = max(most["all"], inside["all"])
        if inside["all"] == 2:
            two_run.set()
        await two_run.wait()
        await asyncio.sleep(0.01)
        inside["all"] -= 1
        return x

    pipeline: Pipeline = app.pipeline("limited")
    pipeline.step(count, each=list(range(8)))
    run = pipeline.start()

    work(app)

    assert run.result("count") == list(range(8))
    assert most["all"] == 2


def test_a_test_drains_a_run_without_a_worker() -> None:
    app = App("sqlite:///:memory:")
    dub = Dub(app)
    with manual(app) as jobs:
        run = dub.pipeline.start(video="v")
        jobs.drain()

        assert run.state() is RunState.COMPLETED
        assert run.result("mux_video") == "v+0.0.mp3+0.5.mp3+1.0.mp3"
