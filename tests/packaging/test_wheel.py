"""What is in the wheel: all of the package, its SQL included, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def wheel_names(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=pytestconfig.rootpath, check=True, capture_output=True)
    [wheel] = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_source_file_is_in_the_wheel(wheel_names: set[str], pytestconfig: pytest.Config) -> None:
    source = pytestconfig.rootpath / "src"
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if _belongs(path)}

    assert any(name.endswith(".sql") for name in wanted)
    assert wanted <= wheel_names


def test_nothing_else_is_in_the_wheel(wheel_names: set[str]) -> None:
    top = {name.split("/")[0] for name in wheel_names}

    assert {name.partition("-")[0] for name in top} == {"stagepost"}
    assert not [name for name in wheel_names if name.endswith((".pth", ".pyc"))]


def _belongs(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
