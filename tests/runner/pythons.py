"""Runs tests on every interpreter that the project claims to support and that is found here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.runner.piece import ROOT, STATE, Piece
from tests.runner.screen import Screen

NAME = re.compile(r"python3\.(\d+)")
OLDEST = 11
ENVIRONMENTS = STATE / "pythons"
TESTS = ("tests/unit", "tests/conformance", "tests/acceptance")


def pieces(screen: Screen) -> list[Piece]:
    """Tests and type checks for each interpreter, in a separate environment."""
    found = interpreters()
    screen.say(f"Interpreters found: {', '.join(found)}")
    wanted: list[Piece] = []
    for version, path in found.items():
        home = ENVIRONMENTS / version
        made = [str(ROOT / "dev"), "environment", str(home)]
        subprocess.run(made, env={**os.environ, "PYTHON": str(path)}, check=True)
        mypy = (str(home / "bin" / "mypy"), f"--cache-dir={home / 'mypy-cache'}")
        wanted.append(Piece(f"python-{version}", pytest=TESTS, python=str(home / "bin" / "python")))
        wanted.append(Piece(f"mypy-{version}", command=mypy))
    return wanted


def interpreters() -> dict[str, Path]:
    """One interpreter of each version from 3.11 on: on PATH, of pyenv, of uv."""
    found: dict[str, Path] = {}
    for path in _candidates():
        version = _version_of(path)
        if version is not None and int(version.partition(".")[2]) >= OLDEST:
            found.setdefault(version, path)
    return dict(sorted(found.items(), key=lambda item: int(item[0].partition(".")[2])))


def _candidates() -> Iterator[Path]:
    yield Path(getattr(sys, "_base_executable", sys.executable))
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield from sorted(path for path in Path(folder).glob("python3.*") if NAME.fullmatch(path.name))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted((pyenv / "versions").glob("3.*/bin/python3"))
    uv = STATE / "uv" / "bin" / "uv"
    program = str(uv) if uv.exists() else shutil.which("uv")
    if program:
        listed = subprocess.run(
            [program, "python", "list", "--only-installed", "--output-format", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
        yield from (Path(path) for path in re.findall(r'"path":\s*"([^"]+)"', listed.stdout))


def _version_of(path: Path) -> str | None:
    """As `3.13`; None if it does not start, as a shim of pyenv does whose version is not chosen."""
    program = "import sys; print('%d.%d' % sys.version_info[:2], sys.implementation.name, sep=' ')"
    try:
        said = subprocess.run([path, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version, _, implementation = said.stdout.strip().partition(" ")
    return version if implementation == "cpython" else None
