"""What follows from how the steps of a run are, and how the arguments of a step's jobs are made."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from stagepost.model import pipeline
from stagepost.model.pipeline import (
    CannotCompose,
    Constant,
    Decision,
    Gathered,
    OnStepFailed,
    Output,
    Plan,
    RunInput,
    RunState,
    Source,
    StepPlan,
    StepState,
    compose,
    decide,
    in_order,
    steps_named_in,
)

PENDING, RUNNING, COMPLETED, FAILED, SKIPPED, CANCELLED = StepState


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def step(name: str, *parents: str, on_failed: str = "stop", **more: Any) -> StepPlan:
    return StepPlan(
        name=name,
        task_name=name,
        parents=parents,
        on_failed=OnStepFailed(on_failed),
        queue_name="default",
        priority=0,
        max_attempts=1,
        **{"max_bytes": 1000, **more},
    )


def decided(*steps: tuple[StepPlan, StepState], is_cancelled: bool = False) -> Decision:
    plan = Plan(steps=tuple(one for one, _ in steps))
    return decide(plan, {one.name: state for one, state in steps}, is_cancelled=is_cancelled)


def test_steps_without_parents_are_the_first() -> None:
    assert decided((step("a"), PENDING), (step("b"), PENDING), (step("c", "a"), PENDING)) == Decision(start=("a", "b"))


def test_a_step_waits_for_all_its_parents() -> None:
    join = step("c", "a", "b")

    assert decided((step("a"), COMPLETED), (step("b"), RUNNING), (join, PENDING)) == Decision()
    assert decided((step("a"), COMPLETED), (step("b"), COMPLETED), (join, PENDING)) == Decision(start=("c",))


def test_a_run_ends_when_nothing_runs_or_waits() -> None:
    assert decided((step("a"), COMPLETED)) == Decision(end=RunState.COMPLETED)
    assert decided((step("a"), RUNNING)) == Decision()


def test_stop_lets_running_steps_end_and_skips_the_rest() -> None:
    bad, other, after = step("bad"), step("other"), step("after", "other")

    assert decided((bad, FAILED), (other, RUNNING), (after, PENDING)) == Decision()
    assert decided((bad, FAILED), (other, COMPLETED), (after, PENDING)) == Decision(pass_over=("after",))
    assert decided((bad, FAILED), (other, COMPLETED), (after, SKIPPED)) == Decision(end=RunState.FAILED)


def test_skip_skips_dependent_steps_even_while_other_parents_run() -> None:
    bad, other, after, free = step("bad", on_failed="skip"), step("other"), step("after", "bad", "other"), step("free")

    assert decided((bad, FAILED), (other, RUNNING), (after, PENDING), (free, PENDING)) == Decision(
        start=("free",), pass_over=("after",)
    )
    assert decided((bad, FAILED), (after, SKIPPED), (step("last", "after"), PENDING)).pass_over == ("last",)
    assert decided((bad, FAILED), (after, SKIPPED)) == Decision(end=RunState.COMPLETED_WITH_ERRORS)


def test_continue_starts_dependent_steps() -> None:
    bad, after = step("bad", on_failed="continue"), step("after", "bad")

    assert decided((bad, FAILED), (after, PENDING)) == Decision(start=("after",))
    assert decided((bad, FAILED), (after, COMPLETED)) == Decision(end=RunState.COMPLETED_WITH_ERRORS)


def test_a_cancelled_run_starts_nothing() -> None:
    a, b = step("a"), step("b")

    assert decided((a, RUNNING), (b, PENDING), is_cancelled=True) == Decision()
    assert decided((a, CANCELLED), (b, PENDING), is_cancelled=True) == Decision(pass_over=("b",))
    assert decided((a, CANCELLED), (b, CANCELLED), is_cancelled=True) == Decision(end=RunState.CANCELLED)


def composed(inputs: dict[str, Source], *, each: str | None = None, max_bytes: int = 1000, **outputs: Any) -> Any:
    made = step("s", inputs=inputs, each=each, max_bytes=max_bytes)
    given = {"video": raw({"key": "v", "sizes": [1, 2]})}
    found = {name: None if value is None else raw(value) for name, value in outputs.items()}
    return [msgspec.json.decode(payload) for payload in compose(made, given=given, outputs=found)]


def test_arguments_come_from_constants_input_and_outputs() -> None:
    inputs: dict[str, Source] = {
        "a": Constant(raw([1])),
        "b": RunInput("video", ("sizes", 1)),
        "c": Output("x", ("deep", 0, "text")),
        "d": Gathered((Output("x", ("deep",)), Constant(raw(7)))),
    }

    assert composed(inputs, x={"deep": [{"text": "ä"}]}) == [{"a": [1], "b": 2, "c": "ä", "d": [[{"text": "ä"}], 7]}]


def test_each_element_makes_a_job() -> None:
    inputs: dict[str, Source] = {"one": Output("x"), "same": Constant(raw(0))}

    assert composed(inputs, each="one", x=[3, "c", None]) == [
        {"one": 3, "same": 0}, {"one": "c", "same": 0}, {"one": None, "same": 0},
    ]  # fmt: skip
    assert composed(inputs, each="one", x=[]) == []


def test_a_failed_step_yields_null_and_no_elements() -> None:
    assert composed({"a": Output("x"), "b": Output("x", ("key",))}, x=None) == [{"a": None, "b": None}]
    assert composed({"a": Output("x")}, each="a", x=None) == []


@pytest.mark.parametrize(
    ("inputs", "each", "output", "complaint"),
    [
        ({"a": Output("x", ("key",))}, None, {}, "the result of step 'x' has no 'key'."),
        ({"a": Output("x", ("key", 3))}, None, {"key": [1]}, "the result of step 'x'['key'] has no 3."),
        ({"a": Output("x", ("key",))}, None, "text", "the result of step 'x' has no 'key'."),
        ({"a": RunInput("video", ("no",))}, None, 0, "the run's input 'video' has no 'no'."),
        ({"a": Output("x")}, "a", "text", "the source of `a` is not a list"),
        ({"a": Output("x")}, "a", {"b": 1}, "is not a list"),
        ({"a": Constant(raw(None))}, "a", 0, "is not a list"),
        ({"a": Output("x")}, "a", [0] * 10_001, "the source of `a` has 10,001 elements; the limit is 10,000"),
        ({"a": Output("x")}, None, "x" * 1000, "its arguments are 1,008 bytes of JSON; the limit is 1,000"),
        ({"a": Output("x")}, "a", ["", "x" * 1000], "its arguments are 1,008 bytes"),
    ],
)
def test_arguments_that_cannot_be_built_raise_an_error_that_says_why(
    inputs: dict[str, Source], each: str | None, output: Any, complaint: str
) -> None:
    with pytest.raises(CannotCompose) as caught:
        composed(inputs, each=each, x=output)

    assert complaint in str(caught.value)


def test_the_jobs_of_a_step_together_may_not_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MOST_BYTES", 100)

    with pytest.raises(CannotCompose, match="the arguments of its 20 jobs are 160 bytes of JSON together"):
        composed({"a": Output("x")}, each="a", x=[11] * 20)


def test_sources_name_steps() -> None:
    source = Gathered((Output("a"), RunInput("b"), Gathered((Output("c", ("d",)), Constant(raw(1))))))

    assert list(steps_named_in(source)) == ["a", "c"]


def test_order_puts_each_step_after_its_parents_and_keeps_the_rest() -> None:
    assert in_order({"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": []}) == ["a", "b", "c", "d"]
    assert in_order({"x": [], "y": []}) == ["x", "y"]
    assert in_order({"a": ["b"], "b": ["a"]}) is None


def test_a_plan_survives_encoding_as_json() -> None:
    sources: dict[str, Source] = {
        "a": Gathered((Constant(raw({"x": [1.5, None]})), RunInput("i", ("k", 2)), Output("s")))
    }
    plan = Plan(steps=(step("s"), step("t", "s", inputs=sources, each="a", on_failed="skip")))

    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
