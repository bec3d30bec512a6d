"""The contents of the wheels: all of each package, including its SQL, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECTS = {"stagepost": ".", "stagepost_dubbing": "apps/dubbing"}
"""The packages and where their projects are."""


@pytest.fixture(scope="module", params=PROJECTS)
def package(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def project(pytestconfig: pytest.Config, package: str) -> Path:
    return pytestconfig.rootpath / PROJECTS[package]


@pytest.fixture(scope="module")
def wheel_names(project: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    [wheel] = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_source_file_is_in_the_wheel(wheel_names: set[str], project: Path) -> None:
    source = project / "src"
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if _belongs(path)}

    assert any(name.endswith(".sql") for name in wanted)
    assert wanted <= wheel_names


def test_nothing_else_is_in_the_wheel(wheel_names: set[str], package: str) -> None:
    top = {name.split("/")[0] for name in wheel_names}

    assert {name.partition("-")[0] for name in top} == {package}
    assert not [name for name in wheel_names if name.endswith((".pth", ".pyc"))]


def _belongs(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
