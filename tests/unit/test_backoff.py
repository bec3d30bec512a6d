"""The delay that grows with every failure in a row."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import stagepost
from stagepost.model.backoff import backoff_seconds


def test_the_delay_doubles_from_the_first_to_the_longest() -> None:
    delays = [backoff_seconds(failures, first=0.1, longest=1.0) for failures in range(7)]

    assert delays == [0.1, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_another_factor_grows_faster_or_not_at_all() -> None:
    assert [backoff_seconds(failures, first=2, longest=100, factor=3) for failures in (1, 2, 3, 4, 5)] == [
        2, 6, 18, 54, 100,
    ]  # fmt: skip
    assert backoff_seconds(10**9, first=2, longest=100, factor=1) == 2


@pytest.mark.parametrize("failures", [1_025, 10**6, 10**400])
def test_no_number_of_failures_overflows(failures: int) -> None:
    assert backoff_seconds(failures, first=0.1, longest=5.0) == 5.0


@pytest.mark.parametrize("failures", [1, 2, 10**6])
def test_a_first_delay_of_zero_stays_zero(failures: int) -> None:
    assert backoff_seconds(failures, first=0.0, longest=5.0) == 0.0


def test_no_other_module_raises_a_number_to_a_power() -> None:
    """Every delay that grows uses this formula; a second one would be a power somewhere else."""
    found = {
        path.name
        for path in Path(stagepost.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
        if not (isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant))
    }

    assert found == {"backoff.py"}
