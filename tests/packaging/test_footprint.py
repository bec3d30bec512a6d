"""What an installation of the core costs: packages, bytes, and modules that a plain import loads."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

MOST_PACKAGES = 4
MOST_BYTES = 5_000_000
BASE = "import asyncio, sqlite3, msgspec"
"""What every program imports that waits on an event loop, stores something, and encodes JSON."""
MOST_MODULES = 210
"""How many modules `import stagepost` may add to that base."""
MOST_TIMES = 5
ROUNDS = 5
ONLY_WHEN_USED = (
    "stagepost.cli.",
    "stagepost.transport.rabbitmq.consumer.",
    "stagepost.transport.rabbitmq.publisher.",
    "stagepost.upkeep.",
    "stagepost.worker.",
    "click.",
    "pika.",
    "psycopg.",
    "importlib.resources.",
)
"""What a program that only enqueues jobs on SQLite does not need."""

LOADED = f"""
import json, sys
{BASE}
before = set(sys.modules)
import stagepost
print(json.dumps(sorted(set(sys.modules) - before)))
"""
TIMED = """
import time
began = time.process_time()
{what}
print(time.process_time() - began)
"""


def test_the_core_installs_few_packages_and_few_bytes(pytestconfig: pytest.Config) -> None:
    needed = {"stagepost": distribution("stagepost")}
    unseen = ["stagepost"]
    while unseen:
        for line in needed[unseen.pop()].requires or []:
            requirement = Requirement(line)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in needed:
                needed[requirement.name] = distribution(requirement.name)
                unseen.append(requirement.name)
    own = _size(pytestconfig.rootpath / "src" / "stagepost")
    size = own + sum(_installed_size(found) for name, found in needed.items() if name != "stagepost")

    sys.stdout.write(f"packages: {', '.join(sorted(needed))}; {size / 1e6:.1f} MB\n")
    assert len(needed) <= MOST_PACKAGES, sorted(needed)
    assert size <= MOST_BYTES


def test_an_import_loads_only_what_every_program_needs() -> None:
    added: list[str] = json.loads(_run(LOADED))

    assert [name for name in added if f"{name}.".startswith(ONLY_WHEN_USED)] == []
    assert len(added) <= MOST_MODULES


def test_an_import_takes_a_few_times_as_long_as_that_of_the_standard_modules_it_needs() -> None:
    """Compares CPU time, the best of a few rounds; a machine of 2026 needs about 0.1 s for the import."""
    _run("import stagepost")  # compiles
    took, base = (
        min(float(_run(TIMED.format(what=what))) for _ in range(ROUNDS)) for what in ("import stagepost", BASE)
    )

    sys.stdout.write(f"import stagepost: {took:.3f} s, {took / base:.1f} times `{BASE}`\n")
    assert took < MOST_TIMES * base


def test_the_worker_is_there_when_it_is_asked_for() -> None:
    assert _run("from stagepost import Worker; print(Worker.__module__)").strip() == "stagepost.worker.worker"
    assert _run("import stagepost; print('Worker' in dir(stagepost))").strip() == "True"
    assert "has no attribute 'Wroker'" in _run(
        "import stagepost\ntry:\n    stagepost.Wroker\nexcept AttributeError as error:\n    print(error)"
    )


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")


def _installed_size(found: Distribution) -> int:
    paths = [Path(str(found.locate_file(file))) for file in found.files or [] if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file())
