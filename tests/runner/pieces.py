"""The pieces of `./dev test` and the parts of `./dev prove`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runner.piece import Piece

PROGRAMS = Path(sys.executable).parent

CHECKS = (
    Piece("mypy", command=(str(PROGRAMS / "mypy"),)),
    Piece("ruff", command=(str(PROGRAMS / "ruff"), "check", ".")),
    Piece("ruff-format", command=(str(PROGRAMS / "ruff"), "format", "--check", "--quiet", ".")),
    Piece("import-linter", command=(str(PROGRAMS / "lint-imports"), "--no-logo")),
)
TEST = (
    Piece("fault", pytest=("tests/fault", "--ignore=tests/fault/test_mutants.py")),
    Piece("acceptance", pytest=("tests/acceptance", "tests/packaging", "--ignore=tests/acceptance/foreign")),
    Piece("apps", pytest=("tests/apps",)),
    Piece("conformance", pytest=("tests/conformance",)),
    Piece("mutants", pytest=("tests/fault/test_mutants.py",)),
    Piece(
        "rest",
        pytest=(
            "tests/unit",
            "tests/property",
            "tests/services",
            "tests/runner",
            "tests/models",
            "tests/acceptance/foreign",
        ),
    ),
    *CHECKS,
)
"""Longest first."""
AT_ONCE = 4
"""How many run at once: many tests wait more than they compute, for leases, restarts and brokers."""

PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "fault": (("tests/fault", "--ignore=tests/fault/test_mutants.py"),),
    "mutants": (("tests/fault/test_mutants.py",),),
    "acceptance": (("tests/acceptance",),),
    "apps": (("tests/apps",),),
    "conformance": (("tests/conformance",),),
    "property": (("tests/property",),),
    "models": (("tests/models",),),
    "unit": (("tests/unit", "tests/services", "tests/packaging", "tests/runner"),),
}
"""What pytest runs for each part of the proof."""
