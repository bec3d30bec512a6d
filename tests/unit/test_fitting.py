"""Which annotations of results fit which of parameters, as their values look in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from stagepost.model.fitting import ANY, described, element_of, fits, list_of, one_of, or_null, part_of, shape_of


@dataclass
class Segment:
    text: str
    at: float = 0.0


class Line(msgspec.Struct):
    text: str


class Numbered(TypedDict):
    text: int


class Tree(msgspec.Struct):
    parts: list[Tree]


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Pair(NamedTuple):
    a: int
    b: str


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (int, int), (int, float), (bool, bool), (None, str | None), (str, str | None),
        (Any, int), (int, Any), (str, datetime), (UUID, str), (Decimal, str), (bytes, str),
        (Colour, str), (Level, int), (Literal["a", "b"], str), (Annotated[int, "note"], int),
        (list[int], list[float]), (list[int], tuple[int, ...]), (list[int], Sequence[int]), (set[str], list[str]),
        (list, list[int]), (tuple[int, str], tuple[int, str]), (tuple[int, int], list[int]),
        (dict[str, int], dict[str, float]), (dict[str, Any], Segment), (Segment, dict[str, Any]), (Segment, Line),
        (Line, Segment), (Tree, Tree), (int | str, str | int | None), (Pair, Pair), (list[Pair], list[Any]),
    ],
)  # fmt: skip
def test_these_fit(source: Any, target: Any) -> None:
    assert fits(shape_of(source), shape_of(target))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (int, str), (str, int), (float, int), (bool, int), (None, str), (str | None, str),
        (list[int], list[str]), (list[int], int), (int, list[int]), (str, list[str]), (list[int], dict[str, int]),
        (tuple[int, str], tuple[int, int]), (tuple[int], tuple[int, int]),
        (Colour, int), (Level, str), (Literal[1], str), (datetime, int),
        (dict[str, int], dict[str, str]), (Segment, str), (Segment, dict[str, int]), (Segment, Numbered),
        (dict[str, list[int]], dict[str, list[str]]), (list[Segment], list[str]), (int | str, int),
    ],
)  # fmt: skip
def test_these_do_not_fit(source: Any, target: Any) -> None:
    assert not fits(shape_of(source), shape_of(target))


def test_annotations_without_a_json_form_are_assumed_to_fit() -> None:
    assert shape_of(object()) is ANY
    assert fits(shape_of(int), shape_of(type("Odd", (), {})))


@pytest.mark.parametrize(
    ("annotation", "key", "text"),
    [
        (Segment, "at", "float"), (Line, "text", "str"), (Numbered, "text", "int"), (dict[str, bool], "x", "bool"),
        (list[int], 3, "int"), (Any, "x", "any"), (Segment | None, "x", "any"), (tuple[int, str], 0, "int | str"),
    ],
)  # fmt: skip
def test_parts_have_shapes_too(annotation: Any, key: str | int, text: str) -> None:
    part = part_of(shape_of(annotation), key)

    assert part is not None
    assert described(part) == text


@pytest.mark.parametrize(("annotation", "key"), [(Segment, "no"), (int, "x"), (list[int], "x"), (str, 0)])
def test_some_parts_do_not_exist(annotation: Any, key: str | int) -> None:
    assert part_of(shape_of(annotation), key) is None


def test_elements_have_shapes_too() -> None:
    assert described(element_of(shape_of(list[Segment])) or ANY) == "Segment"
    assert element_of(shape_of(str)) is None
    assert element_of(ANY) == ANY


def test_shapes_are_described_like_annotations() -> None:
    assert described(shape_of(dict[str, list[Segment | None]])) == "dict[str, list[Segment | None]]"
    assert described(or_null(list_of(shape_of(int)))) == "list[int] | None"
    assert described(one_of((shape_of(int),))) == "int"
    assert described(shape_of(datetime)) == "datetime"
