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
MUTANTS = ("tests/fault/test_mutants.py",)
BROKER = (
    "tests/fault/test_rabbitmq_kill_points.py",
    "tests/fault/test_rabbitmq_messages.py",
    "tests/fault/test_rabbitmq_nightly.py",
    "tests/fault/test_rabbitmq_outages.py",
    "tests/fault/test_remote.py",
)
FAULT = ("tests/fault", *(f"--ignore={path}" for path in (*MUTANTS, *BROKER)))
FOREIGN = "tests/acceptance/foreign"
COMMANDS = ("tests/acceptance/cli", "tests/acceptance/test_docs.py", "tests/acceptance/test_docs_grants.py")
TEST = (
    Piece("fault", pytest=FAULT),
    Piece("conformance", pytest=("tests/conformance",)),
    Piece("apps", pytest=("tests/apps",)),
    Piece("acceptance", pytest=("tests/acceptance", *(f"--ignore={path}" for path in (*COMMANDS, FOREIGN)))),
    Piece("commands", pytest=(*COMMANDS, "tests/packaging")),
    Piece("broker", pytest=(*BROKER, FOREIGN)),
    Piece("property", pytest=("tests/property", "tests/unit", "tests/services", "tests/runner", "tests/models")),
    Piece("mutants", pytest=MUTANTS),
    *CHECKS,
)
"""Longest first."""
AT_ONCE = 4
"""How many run at once: many tests wait more than they compute, for leases, restarts and brokers."""

PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "fault": (FAULT, BROKER),
    "mutants": (MUTANTS,),
    "acceptance": (("tests/acceptance",),),
    "apps": (("tests/apps",),),
    "conformance": (("tests/conformance",),),
    "property": (("tests/property",),),
    "models": (("tests/models",),),
    "unit": (("tests/unit", "tests/services", "tests/packaging", "tests/runner"),),
}
"""What pytest runs for each part of the proof, each in a separate process."""
