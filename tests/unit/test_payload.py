"""Calls become JSON objects and come back the same, or are refused with a message that helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict, Unpack, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from stagepost.errors import PayloadError, PayloadTooLarge, TaskError
from stagepost.model.payload import Limits, Signature, decode_result, encode_result
from stagepost.model.retry import describe_error

if TYPE_CHECKING:
    from somewhere import JobContext, Missing  # type: ignore[import-not-found]

LIMITS = Limits()
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - an argument may be local time


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int


@dataclass(eq=False)
class Opaque:
    points: tuple[Point, ...]


class Segment(msgspec.Struct):
    start: timedelta
    text: str


class Price(NamedTuple):
    amount: Decimal
    currency: str


class Options(TypedDict, total=False):
    speed: float
    voice: str


class Invoice(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    number: int = pydantic.Field(alias="invoiceNumber")
    due: date
    lines: list[Point] = []


class Account(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


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
        (("a", "b", 3), {}, "send_mail takes 2 positional arguments, 3 were given"),
        (("a",), {"to": "b"}, "send_mail: argument `to` was given twice"),
        (
            ("a",),
            {"bcc": "b"},
            "send_mail: `bcc` is none of its parameters. They are `to`, `subject`, `copies`",
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


# Types


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Point, Point(1, 2)),
        (Opaque, Opaque((Point(1, 2),))),
        (Segment, Segment(timedelta(seconds=1.5), "hi")),
        (Invoice, Invoice(invoiceNumber=1, due=date(2028, 2, 29), lines=[Point(x=1, y=2)])),
        (list[Invoice], [Invoice(invoiceNumber=1, due=date(2028, 2, 29))]),
        (Price, Price(Decimal("0.10"), "EUR")),
        (Options, {"speed": 1.5}),
        (Colour, Colour.BLUE),
        (datetime | None, datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)),
        (datetime, NAIVE),
        (bytes, b"\x00\xff"),
        (set[UUID], {UUID(int=5)}),
        (frozenset[int], frozenset({1, 2})),
        (tuple[int, str], (1, "a")),
        (dict[int, Point], {1: Point(1, 2)}),
        (dict[date, float], {date(2026, 1, 1): 1.5}),
        (int | str | None, None),
        (Annotated[int, msgspec.Meta(ge=1)], 1),
        (Any, {"a": [1, 2.5, "x", None, True, {"b": []}]}),
        (Decimal, 3),
        (float, 3),
    ],
)
def test_a_value_comes_back_as_it_was(annotation: Any, value: Any) -> None:
    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = annotation

    _, kwargs = received(handler, value)

    if isinstance(value, datetime) and value.tzinfo:
        assert kwargs["value"].astimezone(UTC) == value.astimezone(UTC)
    elif isinstance(value, Opaque):
        assert kwargs["value"].points == value.points
    else:
        assert kwargs["value"] == value


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (Any, NAIVE, "`value` is datetime and would come back as str"),
        (dict[str, Any], {"a": [date(2026, 1, 1)]}, "`value['a'][0]` is date and would come back as str"),
        (Any, {1: "a"}, "the key 1 of `value` is int and would come back changed"),
        (Any, {1, 2}, "`value` is set and would come back as list"),
        (Any, Point(1, 2), "`value` is Point and would come back as dict"),
        (datetime, "2026-01-01T00:00:00Z", "`value` is str and would come back as datetime"),
        (datetime, "tomorrow", "must be datetime, not str (Invalid RFC3339"),
        (bytes, "aGk=", "`value` is str and would come back as bytes"),
        (Point, {"x": 1, "y": 2}, "`value` is dict and would come back as Point"),
        (
            Invoice,
            {"invoiceNumber": 1, "due": "2026-01-01"},
            "`value` is dict and would come back as Invoice",
        ),
        (
            Point,
            Point(cast("int", "1"), 2),
            "argument `value` must be Point, not Point (Expected `int`, got `str` - at `$.value.x`",
        ),
        (date, NAIVE, "argument `value` must be date, not datetime"),
        (Colour, "green", "Invalid enum value 'green'"),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "Expected `int` >= 1"),
        (tuple[int, str], (1, "a", 2), "Expected `array` of length 2"),
    ],
)
def test_a_value_that_would_not_come_back_the_same_is_refused(annotation: Any, value: Any, message: str) -> None:
    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = annotation

    with pytest.raises(PayloadError) as refusal:
        encode(handler, value)

    assert message in str(refusal.value)


def test_a_tuple_may_be_given_for_a_list_and_a_list_for_a_tuple() -> None:
    def handler(values: list[Point], pair: tuple[int, ...], anything: Any) -> None: ...

    _, kwargs = received(handler, (Point(1, 2),), [3, 4], {"a": (1, (2,))})

    assert kwargs == {"values": [Point(1, 2)], "pair": (3, 4), "anything": {"a": [1, [2]]}}


@pytest.mark.parametrize("value", [lambda: 1, Custom(), Custom, 3j, range(3), open])
def test_a_value_without_a_json_form_is_refused_with_advice(value: Any) -> None:
    def handler(value: Any) -> None: ...

    with pytest.raises(PayloadError, match=r"argument `value` of type \w+ cannot be stored as JSON.*identifies it"):
        encode(handler, value)


def test_an_open_file_is_refused_by_name(tmp_path: Any) -> None:
    def handler(label: str, log: Any) -> None: ...

    with (
        (tmp_path / "log").open("w") as file,
        pytest.raises(PayloadError, match="argument `log` of type TextIO"),
    ):
        encode(handler, "x", {"file": file}["file"])


def test_a_required_parameter_that_json_cannot_fill_is_refused_at_registration() -> None:
    def handler(client: Custom) -> None: ...

    def ambiguous(when: datetime | str) -> None: ...

    with pytest.raises(TaskError, match="parameter `client: Custom` cannot come from JSON: Custom has no JSON"):
        signature(handler)
    with pytest.raises(TaskError, match=r"parameter `when: .*more than one str-like type"):
        signature(ambiguous)


def test_an_optional_parameter_that_json_cannot_fill_is_left_to_its_default() -> None:
    def handler(name: str, log: IO[str] | None = None) -> None: ...

    assert encode(handler, "x") == '{"name":"x"}'
    with pytest.raises(PayloadError, match=r"parameter `log: .*` cannot be given a value by a job"):
        encode(handler, "x", log=Custom())
    with pytest.raises(PayloadError, match="unknown field `log`"):
        signature(handler).decode('{"name":"x","log":"y"}')


def test_an_annotation_for_type_checkers_only_is_refused_with_advice() -> None:
    def handler(thing: Missing) -> None: ...

    with pytest.raises(TaskError, match=r"annotation of `thing`, 'Missing', cannot be evaluated.*TYPE_CHECKING"):
        signature(handler)


def test_a_secret_that_pydantic_would_mask_is_refused() -> None:
    def handler(account: Account) -> None: ...

    with pytest.raises(PayloadError, match=r"`account\.password` is SecretStr and would come back changed"):
        encode(handler, Account(user="a", password=pydantic.SecretStr("hunter2")))


def test_a_model_that_does_not_fit_is_described_without_its_values() -> None:
    def handler(account: Account) -> None: ...

    secret = "hunter2"

    with pytest.raises(PayloadError, match=r"for `account: Account`: user: Field required - at") as refusal:
        signature(handler).decode(f'{{"account":{{"password":"{secret}","pass":1}}}}')

    assert secret not in describe_error(refusal.value)[1]


def test_parameters_may_have_any_name() -> None:
    def handler(self: int, cls: int, type: int, _x: int, größe: int, class_: int, field: int) -> None: ...  # noqa: A002, PLC2401

    names = {name: number for number, name in enumerate(signature(handler).parameters)}

    assert received(handler, *names.values()) == ((), names)


def test_a_parameter_name_with_two_underscores_in_front_is_refused() -> None:
    def handler(__x: int) -> None: ...

    with pytest.raises(TaskError, match="rename parameter `__x`"):
        signature(handler)


def test_what_is_callable_but_no_function_can_be_described() -> None:
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


def test_a_mistake_deep_inside_names_the_parameter_and_the_place() -> None:
    def handler(points: list[Point]) -> None: ...

    with pytest.raises(PayloadError, match=r"for `points: list\[.*Point\]`: .*at `\$\.points\[1\]\.x`"):
        signature(handler).decode('{"points":[{"x":1,"y":1},{"x":"1","y":1}]}')


# Results


def test_a_result_comes_back_as_annotated() -> None:
    def handler() -> list[Segment]: ...  # type: ignore[empty-body]

    annotation = signature(handler).result_annotation
    text = encode_result([Segment(timedelta(seconds=2), "hi")], annotation=annotation, limits=LIMITS)

    assert text == '[{"start":"PT2S","text":"hi"}]'
    assert decode_result(text, annotation) == [Segment(timedelta(seconds=2), "hi")]


def test_no_result_is_stored_as_nothing() -> None:
    assert encode_result(None, annotation=int, limits=LIMITS) is None
    assert decode_result(None, int) is None


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
        encode_result("x" * 99, annotation=str, limits=Limits(max_bytes=100))


def test_a_return_annotation_without_a_json_form_is_read_as_plain_json() -> None:
    def handler() -> Custom: ...  # type: ignore[empty-body]

    def unresolved() -> Missing: ...

    assert signature(handler).result_annotation is Any
    assert signature(unresolved).result_annotation is Any


def test_parameters_can_be_listed() -> None:
    assert signature(send_mail).parameters == {"to": str, "subject": str, "copies": int}
