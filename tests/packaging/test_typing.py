"""Type checks of an application that uses the installed package: they find misspelt options and wrong arguments."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

APPLICATION = Path(__file__).with_name("mistakes.py.txt")
"""Not a `.py` file, because our own type checks must not find its mistakes."""
EXPECTED = re.compile(r"# error: ([a-z-]+)$")
FOUND = re.compile(r"^mistakes\.py:(\d+): error: .*\[([a-z-]+)\]$")


@pytest.fixture(scope="module")
def python(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the built wheel, and besides it only what this one has."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=pytestconfig.rootpath, check=True, capture_output=True)
    venv.create(folder / "venv", with_pip=False)
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return folder / "venv" / "bin" / "python"


def test_mypy_finds_misspelt_options_and_wrong_argument_types(python: Path, tmp_path: Path) -> None:
    application = tmp_path / "mistakes.py"
    application.write_text(APPLICATION.read_text(encoding="utf-8"), encoding="utf-8")
    lines = application.read_text(encoding="utf-8").splitlines()
    expected = {
        (number, match[1]) for number, line in enumerate(lines, start=1) if (match := EXPECTED.search(line)) is not None
    }
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "mistakes.py"]
    environment = {**os.environ, "MYPY_CACHE_DIR": str(tmp_path / "cache")}

    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    found = {(int(match[1]), match[2]) for line in checked.stdout.splitlines() if (match := FOUND.match(line))}
    assert expected <= found, checked.stdout + checked.stderr
    assert {number for number, _ in found} == {number for number, _ in expected}, checked.stdout + checked.stderr
