"""Which tests a change can affect, by layer: those of its own layer and of the layers above."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from tests.runner.piece import ROOT

EVERYTHING = ("tests",)
DOCS = ("tests/acceptance/test_docs.py", "tests/acceptance/test_docs_grants.py", "tests/acceptance/test_examples.py")
ABOVE_STORE = ("tests/unit", "tests/conformance", "tests/property", "tests/fault", "tests/acceptance", "tests/apps")
ABOVE_WORKER = ("tests/unit", "tests/fault", "tests/acceptance", "tests/apps")
AFFECTED = {
    "src/stagepost/cli": ("tests/unit", "tests/acceptance"),
    "src/stagepost/testing": ("tests/unit", "tests/acceptance"),
    "src/stagepost/worker": ABOVE_WORKER,
    "src/stagepost/upkeep": ABOVE_STORE,
    "src/stagepost/client": ABOVE_STORE,
    "src/stagepost/transport": ABOVE_STORE,
    "src/stagepost/store": ABOVE_STORE,
    "tests/acceptance": ("tests/acceptance",),
    "tests/apps": ("tests/apps",),
    "tests/conformance": ABOVE_STORE,
    "tests/fault": ("tests/fault", "tests/apps"),
    "tests/models": ("tests/models",),
    "tests/property": ("tests/property",),
    "apps": ("tests/apps",),
    "benchmarks": ("tests/unit/test_benchmarks.py",),
    "models": ("tests/models",),
    "docs": DOCS,
    "examples": DOCS,
    "README.md": DOCS,
    "CONTRIBUTING.md": DOCS,
    "CHANGELOG.md": (),
    "SECURITY.md": (),
    "LICENSE": (),
    ".editorconfig": (),
    ".gitignore": (),
}
"""The longest prefix of a file's path decides. A prefix that is not here affects everything."""


def affected_tests(files: Iterable[str]) -> list[str]:
    """Paths for pytest; none if no test can be affected."""
    paths = {path for file in files for path in _tests_of(file) if (ROOT / path).exists()}
    if "tests" in paths:
        return list(EVERYTHING)
    return sorted(path for path in paths if not any(path != other and _is_below(path, other) for other in paths))


def _tests_of(file: str) -> tuple[str, ...]:
    path = PurePath(file)
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return (file,)
    prefixes = ["/".join(path.parts[:length]) for length in range(len(path.parts), 0, -1)]
    return next((AFFECTED[prefix] for prefix in prefixes if prefix in AFFECTED), EVERYTHING)


def _is_below(path: str, other: str) -> bool:
    return PurePath(path).is_relative_to(other)
