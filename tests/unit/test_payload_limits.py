"""Nothing gets into a payload that a database or another reader of JSON would refuse or change."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stagepost.errors import ConfigurationError, PayloadError, PayloadTooLarge
from stagepost.model.payload import PayloadLimits, Signature
from stagepost.model.results import decode_result, encode_result

LIMITS = PayloadLimits()


def take(value: Any) -> None: ...


SIGNATURE = Signature.of(take, context_parameter=False)


def encode(value: Any, limits: PayloadLimits = LIMITS) -> str:
    return SIGNATURE.encode((value,), {}, limits=limits)


def received(value: Any) -> Any:
    _, kwargs = SIGNATURE.decode(encode(value))
    return kwargs["value"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "the number nan"),
        ([1.0, None, -math.inf], "the number -inf"),
        (2**63, "integer beyond 64 bits"),
        ([-(2**63) - 1], "integer beyond 64 bits"),
        ({"a": 2**200}, "integer beyond 64 bits"),
        ("a\0b", "NUL character"),
        ({"a\0": 1}, "NUL character"),
        ("\ud800", "half a surrogate pair"),
        ({"\udfff": 1}, "half a surrogate pair"),
    ],
)
def test_values_that_a_database_or_json_reader_would_refuse_are_refused(value: Any, message: str) -> None:
    with pytest.raises(PayloadError, match=f"take: argument `value` has .*{message}"):
        encode(value)
    with pytest.raises(PayloadError, match=f"the result has .*{message}"):
        encode_result(value, annotation=Any, limits=LIMITS)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), "\\u0000", "9" * 30, "[" * 100, "\U0001f40e", 1e308, 5e-324])
def test_values_that_only_look_forbidden_are_accepted(value: Any) -> None:
    assert received(value) == value
    assert decode_result(encode_result(value, annotation=Any, limits=LIMITS), Any) == value


def nested(depth: int) -> Any:
    value: Any = []
    for level in range(depth - 1):
        value = [value] if level % 2 else {"a": value}
    return value


def test_nesting_is_limited() -> None:
    at_limit, beyond = nested(32), nested(33)

    assert received(at_limit) == at_limit
    assert encode_result(at_limit, annotation=Any, limits=LIMITS)
    with pytest.raises(PayloadError, match="argument `value` is nested deeper than 32 levels"):
        encode(beyond)
    with pytest.raises(PayloadError, match="the result is nested deeper than 32 levels"):
        encode_result(beyond, annotation=Any, limits=LIMITS)


def test_many_containers_are_not_deep() -> None:
    assert received([[] for _ in range(1_000)])[999] == []


def test_endless_nesting_is_refused_not_a_crash() -> None:
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(PayloadError, match="argument `value` is nested deeper than 32 levels, or contains itself"):
        encode(circle)
    with pytest.raises(PayloadError, match="the result is nested deeper"):
        encode_result(circle, annotation=Any, limits=LIMITS)
    with pytest.raises(PayloadError, match="recursion"):
        SIGNATURE.decode('{"value":' + "[" * 1_000_000)


def test_size_is_limited_in_bytes_of_utf8() -> None:
    limits = PayloadLimits(max_bytes=100)
    frame = len('{"value":""}')
    at_limit, beyond = "é" * ((100 - frame) // 2), "é" * ((100 - frame) // 2) + "x"

    assert len(encode(at_limit, limits).encode()) == 100
    with pytest.raises(PayloadTooLarge, match=r"arguments of .*take: 101 bytes of JSON; the limit is 100") as refusal:
        encode(beyond, limits)
    assert (refusal.value.size, refusal.value.limit) == (101, 100)


@pytest.mark.parametrize("numbers", [{"max_bytes": 1}, {"max_bytes": 2**40}, {"max_depth": 0}, {"max_depth": 201}])
def test_limits_that_cannot_work_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="it must be from"):
        PayloadLimits(**numbers)
