"""A virtual environment per contender, under .dev/bench, from hash-pinned requirement files."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.catalogue import ENTRIES, Entry

__all__ = ["ROOT", "STATE", "EnvironmentFailed", "lock", "python_of"]

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".dev"
UV = STATE / "uv" / "bin" / "uv"
NEWEST_MINOR = 16
HEADER = "# Made by ./dev bench --lock; releases younger than a week are not taken.\n"


class EnvironmentFailed(RuntimeError):
    """A contender's packages are not available; the text says why."""


def python_of(entry: Entry) -> Path:
    """Return the interpreter for a contender, and create its environment if that is missing or outdated."""
    if entry.home is not None:
        return entry.home / ".venv" / "bin" / "python"
    if not entry.requirements:
        return Path(sys.executable)
    home = STATE / "bench" / entry.program
    requirements = requirements_of(entry)
    if not requirements.exists():
        raise EnvironmentFailed(f"{requirements.relative_to(ROOT)} is missing. Make it: ./dev bench --lock")
    base = _base_python(entry.python)
    stamp = hashlib.sha256(requirements.read_bytes() + str(base).encode()).hexdigest()
    stamp_file = home / "stamp"
    if not (stamp_file.exists() and stamp_file.read_text() == stamp):
        _make(home, base, requirements)
        stamp_file.write_text(stamp)
    return home / "bin" / "python"


def requirements_of(entry: Entry) -> Path:
    """Its pinned requirements."""
    return ROOT / "requirements" / f"bench-{entry.program}.txt"


def lock() -> list[Path]:
    """Pin the newest releases of all contenders again."""
    if not UV.exists():
        raise EnvironmentFailed("uv is needed to pin requirements. Run ./dev setup without STAGEPOST_NO_UV.")
    written = []
    for entry in {entry.program: entry for entry in ENTRIES if entry.requirements}.values():
        target = requirements_of(entry)
        command = [
            str(UV), "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header",
            "--no-emit-index-url", "--exclude-newer", "7 days", "--python", sys.executable,
            "--python-version", ".".join(map(str, entry.python)), "--upgrade", "-",
        ]  # fmt: skip
        done = _run(command, given="\n".join(entry.requirements))
        lines = [line for line in done.splitlines(keepends=True) if not line.startswith("--")]
        target.write_text(HEADER + "".join(lines))
        written.append(target)
    return written


def _make(home: Path, base: Path, requirements: Path) -> None:
    sys.stderr.write(f"bench: installing {requirements.relative_to(ROOT)}\n")
    home.parent.mkdir(parents=True, exist_ok=True)
    python = str(home / "bin" / "python")
    if UV.exists() and not os.environ.get("STAGEPOST_NO_UV"):
        _run([str(UV), "venv", "--quiet", "--clear", "--python", str(base), str(home)])
        _run([str(UV), "pip", "sync", "--quiet", "--require-hashes", "--python", python, str(requirements)])
    else:
        _run([str(base), "-m", "venv", "--clear", str(home)])
        _run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(requirements)])


def _base_python(oldest: tuple[int, int]) -> Path:
    """Choose this environment's Python if it is new enough, so that all contenders run on the same one."""
    if sys.version_info >= oldest:
        return Path(getattr(sys, "_base_executable", sys.executable))
    for candidate in _pythons(oldest):
        check = [str(candidate), "-c", f"import sys; sys.exit(sys.version_info < {oldest})"]
        if subprocess.run(check, capture_output=True, check=False).returncode == 0:
            return candidate
    version = ".".join(map(str, oldest))
    raise EnvironmentFailed(f"needs Python {version} or newer, and none was found")


def _pythons(oldest: tuple[int, int]) -> Iterator[Path]:
    for minor in range(oldest[1], NEWEST_MINOR):
        if found := shutil.which(f"python3.{minor}"):
            yield Path(found)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from sorted(versions.glob("3.*/bin/python3"))


def _run(command: list[str], *, given: str | None = None) -> str:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise EnvironmentFailed(f"{Path(command[0]).name} {command[1]} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
