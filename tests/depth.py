"""How far tests go: `./dev test` as far as a change needs, `./dev prove` all the way, at night further still.

A test marked `prove` runs from `./dev prove` on, one marked `nightly` only with `--nightly`. Where the same test is
worth running at each depth, `sized` says how often it repeats, and `quickly_on` on which databases it runs first.
"""

from __future__ import annotations

import os
from enum import IntEnum
from typing import Literal

import pytest

VARIABLE = "STAGEPOST_TEST_DEPTH"
"""Set it to `proof` or `night` to run single tests as `./dev prove` does."""
DATABASES = ("sqlite", "postgres", "mariadb")
SCOPES: dict[str, Literal["session"]] = {"database": "session"}
"""Of fixtures that outlive a test; parameters would make them as short-lived as one."""


class Depth(IntEnum):
    """Each includes those before."""

    TEST = 0
    PROOF = 1
    NIGHT = 2


DEPTH = Depth[os.environ.get(VARIABLE, "test").upper()]


def sized(test: int, proof: int, night: int | None = None) -> int:
    """The number for the depth of this run."""
    return {Depth.TEST: test, Depth.PROOF: proof, Depth.NIGHT: proof if night is None else night}[DEPTH]


def quickly_on(*names: str, fixture: str = "backend", among: tuple[str, ...] = DATABASES) -> pytest.MarkDecorator:
    """Run on these databases in `./dev test`, and on all of them in the proof."""
    parameters = [name if name in names else pytest.param(name, marks=pytest.mark.prove) for name in among]
    return pytest.mark.parametrize(fixture, parameters, indirect=True, scope=SCOPES.get(fixture))


def deselect_deeper(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that belong to a greater depth than this run's."""
    deeper = {name for name, depth in (("prove", Depth.PROOF), ("nightly", Depth.NIGHT)) if depth > DEPTH}
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in deeper)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
