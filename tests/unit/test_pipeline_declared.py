"""Errors in a pipeline are reported when it is declared, with the pipeline, the step and the parameter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

import pytest

from stagepost import App
from stagepost.client.pipelines import Pipeline
from stagepost.errors import ConfigurationError, PipelineError
from stagepost.model.pipeline import Constant, Gathered, OnStepFailed, Output, RunInput


@dataclass
class Segment:
    text: str
    at: float


class Transcript(TypedDict):
    language: str
    segments: list[Segment]


@pytest.fixture
def app() -> Iterator[App]:
    app = App("sqlite:///:memory:")
    yield app
    app.close()


@pytest.fixture
def dub(app: App) -> Pipeline:
    return app.pipeline("dub")


def extract(video: str) -> str:
    return video


def asr(audio: str, language: str = "en") -> Transcript:
    raise NotImplementedError


def tts(segment: Segment, voice: str = "Ada") -> bytes:
    raise NotImplementedError


def mux(parts: list[bytes], subtitles: list[Segment] | None = None) -> None:
    raise NotImplementedError


def number(x: int) -> int:
    return x


def anything(x: Any = None, y: Any = None):  # type: ignore[no-untyped-def]
    return x, y


def when(at: datetime) -> datetime:
    return at


def take(app: App, *functions: Any) -> list[Any]:
    return [app.task(function) for function in functions]


def test_a_declared_pipeline_becomes_a_plan(app: App, dub: Pipeline) -> None:
    first, second, third, last = take(app, extract, asr, tts, mux)

    a = dub.step(first, inputs={"video": dub.input("video")}, queue="media", max_attempts=3, priority=4)
    b = dub.step(second, inputs={"audio": a, "language": dub.input("language", default="de")})
    c = dub.step(third, each=b["segments"], inputs={"voice": "Bob"}, on_failed="continue", name="speak")
    dub.step(last, inputs={"parts": c, "subtitles": b["segments"]})

    extract_plan, asr_plan, tts_plan, mux_plan = dub.plan.steps
    assert (extract_plan.queue_name, extract_plan.max_attempts, extract_plan.priority) == ("media", 3, 4)
    assert extract_plan.inputs == {"video": RunInput("video")}
    assert asr_plan.parents == ("extract",)
    assert asr_plan.inputs == {"audio": Output("extract"), "language": RunInput("language")}
    assert (tts_plan.name, tts_plan.each, tts_plan.on_failed) == ("speak", "segment", OnStepFailed.CONTINUE)
    assert tts_plan.inputs["segment"] == Output("asr", ("segments",))
    assert isinstance(tts_plan.inputs["voice"], Constant)
    assert bytes(tts_plan.inputs["voice"].value) == b'"Bob"'
    assert mux_plan.parents == ("speak", "asr")


def test_arrows_order_steps_alone_and_in_lists(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)
    a, b, c, d = (dub.step(task, name=name) for name in "abcd")

    result = a >> [b, c] >> d

    assert result is d
    assert {step.name: step.parents for step in dub.plan.steps} == {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


def test_steps_are_stored_after_their_parents_however_they_were_declared(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)
    late, early = dub.step(task, name="late"), dub.step(task, name="early")

    early >> late

    assert [step.name for step in dub.plan.steps] == ["early", "late"]


def test_parents_may_be_named(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)
    a = dub.step(task, name="a")

    assert dub.step(task, name="b", parents=[a]).parents == ("a",)
    assert dub.step(task, name="c", parents=["a", "b"]).parents == ("a", "b")


def test_a_list_of_sources_gathers_them(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)
    a = dub.step(task, name="a")

    b = dub.step(task, name="b", inputs={"x": [a, a["key"], dub.input("z"), 5]})

    assert b.parents == ("a",)
    gathered = b.inputs["x"]
    assert isinstance(gathered, Gathered)
    assert gathered.parts[:3] == (Output("a"), Output("a", ("key",)), RunInput("z"))


def refused(call: Any, *words: str) -> None:
    with pytest.raises(PipelineError) as caught:
        call()
    for word in ("dub", *words):
        assert word in str(caught.value)


def test_a_circle_is_refused(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)
    a = dub.step(task, name="a")
    b = dub.step(task, name="b", inputs={"x": a})

    refused(lambda: b >> a, "cycle", "`a`", "`b`")


def test_a_step_after_itself_is_refused(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)
    a = dub.step(task, name="a")

    refused(lambda: a >> a, "cycle")


def test_an_unknown_step_is_refused(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)
    dub.step(task, name="a")
    elsewhere = app.pipeline("other").step(task, name="a")

    refused(lambda: dub.step(task, name="b", parents=["c"]), "'b'", "no step 'c'", "`a`")
    refused(lambda: dub.step(task, name="b", parents=[elsewhere]), "'b'", "the pipeline has no step 'a'")
    refused(lambda: dub.step(task, name="b", inputs={"x": elsewhere}), "'b'", "belongs to pipeline other")
    refused(lambda: dub.step(task, name="b", inputs={"x": app.pipeline("third").input("z")}), "`x`", "third")


def test_a_parameter_without_a_source_is_refused(app: App, dub: Pipeline) -> None:
    [task] = take(app, extract)

    refused(lambda: dub.step(task), "'extract'", "parameter `video`", "inputs={'video': …}")


def test_a_source_without_a_parameter_is_refused(app: App, dub: Pipeline) -> None:
    [task] = take(app, extract)

    refused(lambda: dub.step(task, inputs={"vidoe": 1}), "'extract'", "has no parameter 'vidoe'", "`video`")


def test_types_that_do_not_fit_are_refused(app: App, dub: Pipeline) -> None:
    first, second, third = take(app, extract, asr, number)
    a = dub.step(first, inputs={"video": "v"})
    b = dub.step(second, inputs={"audio": a})

    refused(lambda: dub.step(third, inputs={"x": a}), "'number'", "`x: int`", "cannot take str")
    refused(lambda: dub.step(third, inputs={"x": b}), "cannot take Transcript")
    refused(lambda: dub.step(third, inputs={"x": b["language"]}), "cannot take str")
    refused(lambda: dub.step(third, inputs={"x": "five"}), "`x`", "must be int")


def test_an_unknown_field_is_refused(app: App, dub: Pipeline) -> None:
    first, second = take(app, extract, asr)
    a = dub.step(first, inputs={"video": "v"})
    b = dub.step(second, inputs={"audio": a})

    refused(lambda: b["segment"], "'asr'", "Transcript", "no 'segment'")
    refused(lambda: a["key"], "'extract'", "str", "no 'key'")


def test_the_result_of_a_step_that_continues_after_failure_may_be_none(app: App, dub: Pipeline) -> None:
    first, second = take(app, number, mux)
    a = dub.step(first, inputs={"x": 1}, on_failed="continue")

    refused(lambda: dub.step(first, name="b", inputs={"x": a}), "'b'", "`x: int`", "int | None")
    many = dub.step(first, name="many", each={"x": [1, 2]}, on_failed="continue")
    refused(lambda: dub.step(second, inputs={"parts": many}), "list[bytes]", "list[int]")


def test_each_on_a_result_that_is_not_a_list_is_refused(app: App, dub: Pipeline) -> None:
    first, second, third = take(app, extract, asr, tts)
    a = dub.step(first, inputs={"video": "v"})
    b = dub.step(second, inputs={"audio": a})

    refused(lambda: dub.step(third, each=b), "'tts'", "`segment`", "each element of Transcript", "not a list")
    refused(lambda: dub.step(second, name="x", each=b["segments"]), "`audio: str`", "cannot take Segment")
    refused(lambda: dub.step(second, name="x", each={"audio": 5}), "`audio`", "must be list[str]")


def test_it_must_be_clear_which_parameter_takes_each_element(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)

    refused(lambda: dub.step(task, each=[1, 2]), "`x`, `y`", "each={'parameter': …}")
    refused(lambda: dub.step(task, each={"x": [1], "y": [2]}), "2 parameters")
    refused(lambda: dub.step(task, each={"x": [1]}, inputs={"x": 1}), "`x`", "`inputs`", "`each`")


def test_the_results_of_many_jobs_are_a_list(app: App, dub: Pipeline) -> None:
    first, _ = take(app, number, anything)
    many = dub.step(first, each={"x": [1, 2]})

    refused(lambda: dub.step(first, name="b", inputs={"x": many}), "`x: int`", "list[int]")
    assert dub.step(first, name="c", each=many).each == "x"


def test_names_are_used_once(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)
    dub.step(task)

    refused(lambda: dub.step(task), "two steps named 'anything'", "`name`")


def test_names_that_cannot_be_stored_are_refused(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)

    refused(lambda: dub.step(task, name="a b"), "'a b'")
    refused(lambda: dub.step(task, name="a" * 101), "100")
    with pytest.raises(ConfigurationError, match="pipeline name 'a b'"):
        app.pipeline("a b")
    for name in ("key", "tx", "a-b"):
        refused(lambda name=name: dub.input(name), f"{name!r}")


def test_an_unknown_policy_is_refused(app: App, dub: Pipeline) -> None:
    [task] = take(app, anything)

    unknown: Any = "ignore"
    refused(lambda: dub.step(task, on_failed=unknown), "'ignore'", "stop, skip, continue")


def test_a_limit_key_from_a_function_is_refused(app: App, dub: Pipeline) -> None:
    task = app.task(max_running=1, limit_by=str)(number)

    refused(lambda: dub.step(task, inputs={"x": 1}), "`limit_by`", "`max_running`")


def test_a_step_has_the_limit_of_its_task(app: App, dub: Pipeline) -> None:
    task = app.task(max_running=2, name="limited")(number)
    dub.step(task, inputs={"x": 1})

    [step] = dub.plan.steps
    assert (step.limit_key, step.limit) == ("limited", None)


def test_a_limit_of_a_remote_task_is_stored_with_the_step(app: App, dub: Pipeline) -> None:
    task = app.task(max_running=2, name="limited", remote=True, queue="elsewhere")(number)
    dub.step(task, inputs={"x": 1})

    [step] = dub.plan.steps
    assert (step.limit_key, step.limit) == ("limited", 2)


def test_the_completion_task_may_take_only_run_id_and_state(app: App) -> None:
    def told(run_id: str, state: str, loud: bool = False) -> None: ...

    def wants_more(run_id: str, mood: str) -> None: ...

    good, bad = take(app, told, wants_more)
    dub = app.pipeline("dub", on_complete=good)
    dub.step(take(app, anything)[0])

    assert dub.plan.on_complete_takes == ("run_id", "state")
    refused(lambda: app.pipeline("dub", on_complete=bad), "wants_more", "`mood`")


def test_a_pipeline_without_steps_cannot_be_started(dub: Pipeline) -> None:
    refused(dub.start, "no steps")


def test_input_is_checked_when_a_run_is_started(app: App, dub: Pipeline) -> None:
    first, second = take(app, number, when)
    dub.step(first, inputs={"x": dub.input("x")})
    dub.step(second, inputs={"at": dub.input("at", default="2026-01-01T00:00:00Z")})
    dub.step(first, name="each", each=dub.input("xs", default=[]))

    refused(dub.start, "input 'x' is missing")
    refused(lambda: dub.start(x=1, y=2), "no input 'y'", "`x`, `at`, `xs`")
    refused(lambda: dub.start(x="one"), "'number'", "input 'x' does not fit", "`x: int`")
    refused(lambda: dub.start(x=1, at="noon"), "'when'", "input 'at'", "`at: datetime`")
    refused(lambda: dub.start(x=1, xs=["a"]), "'each'", "input 'xs'", "each element")
    refused(lambda: dub.start(x=object()), "input 'x'", "cannot be stored as JSON")
    refused(lambda: dub.start(x=1, xs=list(range(100_000))), "bytes of JSON")
    with pytest.raises(ConfigurationError, match="' a' begins or ends with white space"):
        dub.start(" a", x=1)
