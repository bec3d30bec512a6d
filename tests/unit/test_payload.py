"""Calls are encoded as JSON objects and decoded unchanged, or refused with a helpful message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec
import pytest

from stagepost.errors import PayloadError, PayloadTooLarge, TaskError
from stagepost.model.options import TaskOptions
from stagepost.model.payload import PayloadLimits, Signature
from stagepost.model.results import decode_result, encode_result
from stagepost.task import Task

if TYPE_CHECKING:
    from somewhere import JobContext, Missing  # type: ignore[import-not-found]

LIMITS = PayloadLimits()


@dataclass
class Point:
    x: int
    y: int


class Segment(msgspec.Struct):
    start: timedelta
    text: str


class Options(TypedDict, total=False):
    speed: float
    voice: str


class Custom:
    """Neither a dataclass nor anything else that has a JSON form."""


def signature(function: Callable[..., Any]) -> Signature:
    return Signature.of(function, context_parameter=False)


def encode(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    return signature(function).encode(args, kwargs, limits=LIMITS)


def received(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return signature(function).decode(encode(function, *args, **kwargs))


# Binding


def send_mail(to: str, subject: str = "Hello", *, copies: int = 1) -> None: ...


def test_a_call_becomes_one_object_by_parameter_name() -> None:
    assert encode(send_mail, "a@b.example", copies=2) == '{"to":"a@b.example","copies":2}'


def test_the_same_call_written_differently_is_the_same_payload() -> None:
    assert encode(send_mail, copies=2, to="a", subject="b") == encode(send_mail, "a", "b", copies=2)


def test_defaults_stay_out_of_the_payload() -> None:
    assert received(send_mail, "a@b.example") == ((), {"to": "a@b.example"})


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "send_mail: argument `to` is missing"),
        ((), {"subject": "x"}, "send_mail: argument `to` is missing"),
        (("a", "b", 3), {}, "send_mail takes 2 positional arguments, but 3 were given"),
        (("a",), {"to": "b"}, "send_mail: argument `to` was given twice"),
        (
            ("a",),
            {"bcc": "b"},
            "send_mail: `bcc` is not one of its parameters. They are `to`, `subject`, `copies`",
        ),
        (("a",), {"copies": "3"}, "send_mail: argument `copies` must be int, not str"),
        (("a",), {"copies": True}, "send_mail: argument `copies` must be int, not bool"),
        (("a",), {"copies": 1.0}, "send_mail: argument `copies` must be int, not float"),
        ((None,), {}, "send_mail: argument `to` must be str, not NoneType"),
    ],
)
def test_a_call_that_would_fail_is_refused(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(PayloadError) as refusal:
        signature(send_mail).encode(args, kwargs, limits=LIMITS)

    assert message in str(refusal.value)


def test_the_context_is_not_an_argument() -> None:
    def handler(job: JobContext, to: str) -> None: ...

    with_context = Signature.of(handler, context_parameter=True)

    assert with_context.encode(("a",), {}, limits=LIMITS) == '{"to":"a"}'


def test_a_handler_that_cannot_take_the_context_is_refused() -> None:
    def handler(*, to: str) -> None: ...

    with pytest.raises(TaskError, match="no positional parameter that could receive the job's context"):
        Signature.of(handler, context_parameter=True)


def test_positional_only_arguments_come_back_by_position() -> None:
    def move(x: int, y: int = 0, /, *, fast: bool = False) -> None: ...

    assert encode(move, 1, 2, fast=True) == '{"x":1,"y":2,"fast":true}'
    assert received(move, 1, 2, fast=True) == ((1, 2), {"fast": True})
    assert received(move, 1) == ((1,), {})
    with pytest.raises(PayloadError, match="`x` is positional only"):
        encode(move, x=1)


def test_a_default_stands_in_for_a_skipped_positional_only_argument() -> None:
    def move(x: int = 7, y: int = 8, /) -> None: ...

    assert signature(move).decode('{"y":2}') == ((7, 2), {})


def test_extra_arguments_have_their_own_fields() -> None:
    def collect(first: int, *rest: int, **named: Point) -> None: ...

    assert encode(collect, 1, 2, 3, a=Point(4, 5)) == '{"first":1,"rest":[2,3],"named":{"a":{"x":4,"y":5}}}'
    assert received(collect, 1, 2, 3, a=Point(4, 5)) == ((1, 2, 3), {"a": Point(4, 5)})
    assert received(collect, first=1) == ((), {"first": 1})


def test_an_extra_keyword_may_have_the_name_of_a_positional_only_parameter() -> None:
    def collect(first: int, /, **named: int) -> None: ...

    assert received(collect, 1, first=2) == ((1,), {"first": 2})


def test_a_default_stands_in_before_extra_positions() -> None:
    def collect(first: int, second: int = 9, *rest: int) -> None: ...

    assert signature(collect).decode('{"first":1,"rest":[3]}') == ((1, 9, 3), {})


def test_keyword_options_may_be_a_typed_dict() -> None:
    def speak(text: str, **options: Unpack[Options]) -> None: ...

    assert received(speak, "hi", speed=1.5) == ((), {"text": "hi", "speed": 1.5})
    with pytest.raises(PayloadError, match="argument `options` must be"):
        encode(speak, "hi", speed="fast")


def test_parameters_may_have_any_name() -> None:
    def handler(self: int, cls: int, type: int, _x: int, größe: int, class_: int, field: int) -> None: ...  # noqa: A002, PLC2401

    names = {name: number for number, name in enumerate(signature(handler).parameters)}

    assert received(handler, *names.values()) == ((), names)


def test_a_parameter_name_with_two_underscores_in_front_is_refused() -> None:
    def handler(__x: int) -> None: ...

    with pytest.raises(TaskError, match="rename parameter `__x`"):
        signature(handler)


def test_a_callable_that_is_not_a_function_can_be_described() -> None:
    assert received(partial(send_mail, copies=3), "a") == ((), {"to": "a"})
    with pytest.raises(PayloadError, match=r"functools\.partial: argument `to` is missing"):
        encode(partial(send_mail))


# Reading


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ("{}", "for `to: str`: Object missing required field `to`"),
        ('{"to":"a","bcc":1}', "Object contains unknown field `bcc`"),
        ('{"to":"a","copies":"3"}', "for `copies: int`: Expected `int`, got `str` - at `$.copies`"),
        ('["a"]', "Expected `object`, got `array`"),
        ("nonsense", "JSON is malformed"),
        ("", "truncated"),
        ('{"to":"\\ud800"}', "payload does not fit"),
        ('{"to":"a","copies":NaN}', "JSON is malformed"),
    ],
)
def test_a_payload_that_does_not_fit_says_where(payload: str, message: str) -> None:
    with pytest.raises(PayloadError) as refusal:
        signature(send_mail).decode(payload)

    assert message in str(refusal.value)
    assert "send_mail" in str(refusal.value)


# Results


def test_a_result_comes_back_as_annotated() -> None:
    def handler() -> list[Segment]: ...  # type: ignore[empty-body]

    annotation = signature(handler).result_annotation
    text = encode_result([Segment(timedelta(seconds=2), "hi")], annotation=annotation, limits=LIMITS)

    assert text == '[{"start":"PT2S","text":"hi"}]'
    assert decode_result(text, annotation) == [Segment(timedelta(seconds=2), "hi")]


@pytest.mark.parametrize("annotation", [Any, None, int | None])
def test_no_result_is_stored_as_nothing(annotation: Any) -> None:
    assert encode_result(None, annotation=annotation, limits=LIMITS) is None
    assert decode_result(None, annotation) is None


@pytest.mark.parametrize("annotation", [int, list[int], Segment, Path])
def test_none_is_refused_where_the_annotation_promises_a_value(annotation: Any) -> None:
    with pytest.raises(PayloadError, match=r"the result is None, which does not fit the annotation .* `\| None`"):
        encode_result(None, annotation=annotation, limits=LIMITS)


def test_a_path_is_a_result() -> None:
    assert encode_result(Path("/a/b"), annotation=Path, limits=LIMITS) == '"/a/b"'
    assert decode_result('"/a/b"', Path | None) == Path("/a/b")
    with pytest.raises(PayloadError, match="does not fit the annotation `Path`: Expected `str`, got `int`"):
        encode_result(3, annotation=Path, limits=LIMITS)


def test_a_result_need_not_be_annotated() -> None:
    text = encode_result({"at": datetime(2026, 1, 1, tzinfo=UTC)}, annotation=Any, limits=LIMITS)

    assert decode_result(text, Any) == {"at": "2026-01-01T00:00:00Z"}


def test_a_result_that_contradicts_its_annotation_is_refused() -> None:
    with pytest.raises(PayloadError, match="result of type str does not fit the annotation `int`"):
        encode_result("three", annotation=int, limits=LIMITS)
    with pytest.raises(PayloadError, match="stored result does not fit the annotation `int`"):
        decode_result('"three"', int)


def test_a_result_without_a_json_form_is_refused() -> None:
    with pytest.raises(PayloadError, match="the result of type Custom cannot be stored as JSON"):
        encode_result(Custom(), annotation=Any, limits=LIMITS)


def test_a_result_over_the_limit_is_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="result: 101 bytes"):
        encode_result("x" * 99, annotation=str, limits=PayloadLimits(max_bytes=100))


def test_a_return_annotation_without_a_json_form_is_read_as_plain_json() -> None:
    def handler() -> Custom: ...  # type: ignore[empty-body]

    def unresolved() -> Missing: ...

    assert signature(handler).result_annotation is Any
    assert signature(unresolved).result_annotation is Any


def test_parameters_can_be_listed() -> None:
    assert signature(send_mail).parameters == {"to": str, "subject": str, "copies": int}


def test_errors_name_the_task_as_it_is_registered() -> None:
    def mail(to: str) -> None: ...

    task: Task[..., None] = Task(mail, name="shop.send_mail", options=TaskOptions(), wants_context=False)

    with pytest.raises(PayloadError, match=r"^shop\.send_mail: argument `to` is missing"):
        task.job()
    with pytest.raises(PayloadError, match=r"^payload does not fit shop\.send_mail for `to: str`"):
        task.signature.decode('{"to": 7}')
