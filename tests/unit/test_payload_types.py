"""Arguments of every type are decoded unchanged, or refused with a helpful message."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import annotated_types
import msgspec
import pydantic
import pytest

from stagepost.errors import PayloadError, TaskError
from stagepost.model.payload import PayloadLimits, Signature
from stagepost.model.retry import describe_error

if TYPE_CHECKING:
    from somewhere import Missing  # type: ignore[import-not-found]

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - an argument may be local time


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int


@dataclass
class Loose:
    pair: tuple[int, ...]
    facts: dict[str, Any]


@dataclass
class Constrained:
    """msgspec ignores constraints of other libraries in fields."""

    number: Annotated[int, annotated_types.Gt(0)]


class Level(IntEnum):
    HIGH = 1


class Word(StrEnum):
    YES = "yes"


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
    return signature(function).encode(args, kwargs, limits=PayloadLimits())


def received(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return signature(function).decode(encode(function, *args, **kwargs))


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
        (Path, Path("/a/b")),
        (list[PurePosixPath] | None, [PurePosixPath("a")]),
        (dict[str, Any], OrderedDict(a=[1])),
        (Loose, Loose((1,), {"a": 1})),
        (Annotated[int, pydantic.Field(gt=0)], 1),
        (dict[str, pydantic.PositiveInt | None], {"a": None, "b": 1}),
        (Annotated[str, annotated_types.Len(1, 3), "described"], "abc"),
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
        (Any, (1, 2), "`value` is tuple and would come back as list"),
        (dict[str, Any], {"a": [1, (2,)]}, "`value['a'][1]` is tuple and would come back as list"),
        (list[Any], ((1,),), "`value[0]` is tuple and would come back as list"),
        (Loose, Loose((), {"a": (1,)}), "`value.facts['a']` is tuple and would come back as list"),
        (Any, [b"x"], "`value[0]` is bytes and would come back as str"),
        (Any, {"a": UUID(int=5)}, "`value['a']` is UUID and would come back as str"),
        (Any, [Decimal(1)], "`value[0]` is Decimal and would come back as str"),
        (Any, [Path("/a")], "`value[0]` is PosixPath and would come back as str"),
        (Any, [Level.HIGH], "`value[0]` is Level and would come back as int"),
        (Any, OrderedDict(a=1), "`value` is OrderedDict and would come back as dict"),
        (Any, {Word.YES: 1}, "the key <Word.YES: 'yes'> of `value` is Word and would come back changed"),
        (Path, "a/b", "`value` is str and would come back as PosixPath"),
        (Annotated[int, pydantic.Field(gt=0)], -1, "Expected `int` >= 1"),
        (list[pydantic.PositiveInt | None], [1, 0], "Expected `int` >= 1"),
        (Annotated[int, annotated_types.Interval(ge=1, lt=5)], 5, "Expected `int` <= 4"),
        (Annotated[str, pydantic.StringConstraints(pattern="^a")], "b", "matching regex '^a'"),
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
    def handler(values: list[Point], pair: tuple[int, ...], named: dict[str, list[int]]) -> None: ...

    _, kwargs = received(handler, (Point(1, 2),), [3, 4], {"a": (1, 2)})

    assert kwargs == {"values": [Point(1, 2)], "pair": (3, 4), "named": {"a": [1, 2]}}


@pytest.mark.parametrize(
    ("annotation", "constraint"),
    [
        (Annotated[int, annotated_types.Predicate(bool)], "Predicate(bool)"),
        (list[Annotated[str, pydantic.StringConstraints(to_lower=True)]], "_PydanticGeneralMetadata(to_lower=True)"),
        (Annotated[str, pydantic.AfterValidator(str.upper)], "AfterValidator"),
        (list[Constrained], "Gt(gt=0)"),
    ],
)
def test_a_constraint_that_nothing_would_check_is_refused_at_declaration(annotation: Any, constraint: str) -> None:
    def handler(value: Any = None) -> None: ...

    handler.__annotations__["value"] = annotation
    with pytest.raises(TaskError, match=r"parameter `value` is .* nothing would check its constraint") as refusal:
        signature(handler)
    assert constraint in str(refusal.value)

    handler.__annotations__ = {"value": int, "return": annotation}
    with pytest.raises(TaskError, match=r"its return value is .* nothing would check its constraint"):
        signature(handler)


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

    with pytest.raises(TaskError, match="parameter `client: Custom` cannot be decoded from JSON: Custom has no JSON"):
        signature(handler)
    with pytest.raises(TaskError, match=r"parameter `when: .*more than one str-like type"):
        signature(ambiguous)


def test_an_optional_parameter_that_json_cannot_fill_is_left_to_its_default() -> None:
    def handler(name: str, log: IO[str] | None = None) -> None: ...

    assert encode(handler, "x") == '{"name":"x"}'
    with pytest.raises(PayloadError, match=r"a job cannot pass a value for parameter `log: "):
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


def test_a_mistake_deep_inside_names_the_parameter_and_the_place() -> None:
    def handler(points: list[Point]) -> None: ...

    with pytest.raises(PayloadError, match=r"for `points: list\[.*Point\]`: .*at `\$\.points\[1\]\.x`"):
        signature(handler).decode('{"points":[{"x":1,"y":1},{"x":"1","y":1}]}')
