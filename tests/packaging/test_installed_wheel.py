"""The built wheel, installed in a fresh environment, runs the examples as their readers start them."""

from __future__ import annotations

import os
import shutil
import signal
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.services.processes import free_port, wait_until
from tests.services.web import served

ROOT = Path(__file__).parents[2]
SECONDS = 120.0


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has the wheel, and the dependencies of this environment, but not the sources."""
    folder = tmp_path_factory.mktemp("fresh")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    venv.create(folder / "venv")
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # Its own .pth files, which lead to the sources, are not read there.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return str(folder / "venv" / "bin" / "python")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty directory with a copy of the examples."""
    for name in ("script.py", "fastapi_app.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    return tmp_path


def variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STAGEPOST_"))}


def run(python: str, *arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [python, *arguments], cwd=folder, env=variables(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_is_what_runs(python: str, folder: Path) -> None:
    place = run(python, "-c", "import stagepost; print(stagepost.__file__)", folder=folder)

    assert Path(place).is_relative_to(Path(python).parents[1])


def test_the_script_runs(python: str, folder: Path) -> None:
    assert run(python, "script.py", folder=folder) == "Hello, Ada!\nHello, Grace!\n"


def test_the_fastapi_application_runs(python: str, folder: Path) -> None:
    port = free_port()
    command = [python, "-m", "uvicorn", "fastapi_app:api", "--port", str(port)]
    with served(command, port=port, folder=folder, variables={"PYTHONPATH": ""}) as site:
        job = site.post("/orders?item=tea")[1]["job"]
        wait_until(lambda: site.get(f"/jobs/{job}")[1]["state"] == "completed", "the job to end", seconds=SECONDS)
        log = site.stop(signal.SIGTERM)

    assert "Traceback" not in log
