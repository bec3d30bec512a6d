"""Every valid argument is decoded to an equal value, and nothing over a limit is accepted."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepost.errors import PayloadError, PayloadTooLarge
from stagepost.model.payload import PayloadLimits, Signature
from stagepost.model.results import decode_progress, decode_result, encode_progress, encode_result

LIMITS = PayloadLimits(max_bytes=1_000_000)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
OFFSETS = st.integers(-1439, 1439).map(lambda m: dt.timezone(dt.timedelta(minutes=m)))
# An offset can carry the first and the last day over the edge of what a datetime can hold.
MOMENTS = st.datetimes(
    min_value=dt.datetime(2, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    max_value=dt.datetime(9998, 12, 31),  # noqa: DTZ001
    timezones=st.one_of(st.none(), OFFSETS),
)
PLAIN_JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    label: str | None


class Segment(msgspec.Struct):
    start: dt.timedelta
    points: list[Point]


class Price(NamedTuple):
    amount: Decimal
    at: dt.date


class Options(TypedDict, total=False):
    speed: float
    tags: set[str]


class Invoice(pydantic.BaseModel):
    number: int
    due: dt.date
    price: Decimal


POINTS = st.builds(Point, x=INTEGERS, label=st.none() | TEXT)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=4)

TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "any": (Any, PLAIN_JSON),
    "bool": (bool, st.booleans()),
    "int": (int, INTEGERS),
    "float": (float, FLOATS),
    "str": (str, TEXT),
    "bytes": (bytes, st.binary(max_size=50)),
    "datetime": (dt.datetime, MOMENTS),
    "date": (dt.date, st.dates()),
    "time": (dt.time, st.times()),
    "timedelta": (dt.timedelta, st.timedeltas()),
    "decimal": (Decimal, DECIMALS),
    "uuid": (UUID, st.uuids()),
    "enum": (Colour, st.sampled_from(Colour)),
    "int enum": (Level, st.sampled_from(Level)),
    "optional": (int | None, st.none() | INTEGERS),
    "union": (int | str | list[int], INTEGERS | TEXT | st.lists(INTEGERS, max_size=3)),
    "list": (list[float], st.lists(FLOATS, max_size=5)),
    "set": (set[dt.date], st.sets(st.dates(), max_size=5)),
    "frozenset": (frozenset[str], st.frozensets(TEXT, max_size=5)),
    "tuple": (tuple[int, str], st.tuples(INTEGERS, TEXT)),
    "long tuple": (tuple[UUID, ...], st.lists(st.uuids(), max_size=3).map(tuple)),
    "dict": (dict[str, Decimal], st.dictionaries(TEXT, DECIMALS, max_size=4)),
    "dict by int": (dict[int, bool], st.dictionaries(INTEGERS, st.booleans(), max_size=4)),
    "dict by uuid": (dict[UUID, str], st.dictionaries(st.uuids(), TEXT, max_size=4)),
    "dataclass": (Point, POINTS),
    "struct": (Segment, st.builds(Segment, start=st.timedeltas(), points=st.lists(POINTS, max_size=3))),
    "named tuple": (Price, st.builds(Price, amount=DECIMALS, at=st.dates())),
    "typed dict": (
        Options,
        st.fixed_dictionaries({}, optional={"speed": FLOATS, "tags": st.sets(TEXT, max_size=3)}),
    ),
    "pydantic": (Invoice, st.builds(Invoice, number=INTEGERS, due=st.dates(), price=DECIMALS)),
    "nested": (
        dict[str, list[Segment | None]],
        st.dictionaries(
            TEXT,
            st.lists(st.none() | st.builds(Segment, start=st.timedeltas(), points=st.just([]))),
            max_size=2,
        ),
    ),
}


def signature_for(annotation: Any) -> Signature:
    def handler(value: Any, /, *rest: Any, option: Any = None, **named: Any) -> None: ...

    handler.__annotations__ = dict.fromkeys(("value", "rest", "option", "named"), annotation)
    return Signature.of(handler, context_parameter=False)


SIGNATURES = {kind: signature_for(annotation) for kind, (annotation, _) in TYPES.items()}


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_call_comes_back_as_it_was_made(kind: str, data: st.DataObject) -> None:
    _, values = TYPES[kind]
    args = tuple(data.draw(st.lists(values, min_size=1, max_size=3)))
    kwargs = data.draw(st.dictionaries(st.sampled_from(["option", "value", "x"]), values, max_size=2))

    payload = SIGNATURES[kind].encode(args, kwargs, limits=LIMITS)

    assert SIGNATURES[kind].decode(payload) == (args, kwargs)
    assert json.loads(payload).keys() <= {"value", "rest", "option", "named"}


@settings(max_examples=500, deadline=None)
@given(kind=st.sampled_from(list(TYPES)), data=st.data())
def test_a_result_comes_back_as_it_was_returned(kind: str, data: st.DataObject) -> None:
    annotation, values = TYPES[kind]
    result = data.draw(values)

    assert decode_result(encode_result(result, annotation=annotation, limits=LIMITS), annotation) == result


@settings(max_examples=300, deadline=None)
@given(value=PLAIN_JSON)
def test_the_size_limit_is_exact_to_the_byte(value: Any) -> None:
    signature = SIGNATURES["any"]
    size = len(signature.encode((value,), {}, limits=LIMITS).encode())

    assert signature.encode((value,), {}, limits=PayloadLimits(max_bytes=size))
    with pytest.raises(PayloadTooLarge):
        signature.encode((value,), {}, limits=PayloadLimits(max_bytes=size - 1))


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@settings(max_examples=300, deadline=None)
@given(value=PLAIN_JSON, wrapping=st.integers(0, 5), limit=st.integers(1, 6))
def test_the_depth_limit_is_exact_to_the_level(value: Any, wrapping: int, limit: int) -> None:
    for _ in range(wrapping):
        value = [value]
    limits = PayloadLimits(max_depth=limit)

    if depth_of(value) <= limit:
        assert SIGNATURES["any"].encode((value,), {}, limits=limits)
    else:
        with pytest.raises(PayloadError, match=f"nested deeper than {limit} levels"):
            SIGNATURES["any"].encode((value,), {}, limits=limits)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | MOMENTS | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


def as_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


@settings(max_examples=500, deadline=None)
@given(value=ANYTHING)
def test_an_unannotated_parameter_gives_back_the_same_or_refuses(value: Any) -> None:
    signature = SIGNATURES["any"]
    try:
        payload = signature.encode((value,), {}, limits=LIMITS)
    except PayloadError:
        return

    [received], _ = signature.decode(payload)

    assert received == as_lists(value)
    assert "\0" not in json.dumps(json.loads(payload), ensure_ascii=False)


def reader(name: str, points: list[Point], at: dt.datetime | None = None) -> None: ...


@settings(max_examples=500, deadline=None)
@given(payload=st.text() | PLAIN_JSON.map(json.dumps) | st.binary().map(lambda b: b.decode("latin-1")))
def test_any_text_is_decoded_or_refused_with_a_payload_error(payload: str) -> None:
    try:
        args, kwargs = Signature.of(reader, context_parameter=False).decode(payload)
    except PayloadError:
        return

    assert args == ()
    assert kwargs.keys() >= {"name", "points"}


@settings(max_examples=500, deadline=None)
@given(kind=st.sampled_from(list(TYPES)), data=st.data())
def test_progress_comes_back_as_it_was_reported(kind: str, data: st.DataObject) -> None:
    annotation, values = TYPES[kind]
    progress = data.draw(values.filter(lambda value: value is not None))

    assert decode_progress(encode_progress(progress, annotation=annotation), annotation) == progress
