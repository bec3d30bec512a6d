"""Detects changes of source files by polling their modification times."""

from __future__ import annotations

import site
import sys
import sysconfig
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from stagepost.clock import sleep
from stagepost.worker.supervisor_connection import ParentConnection

__all__ = ["SourceWatch", "project_files", "python_files_below", "report_sources", "sources_in"]

REPORT_SECONDS = 1.0
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


class SourceWatch:
    """Reports watched files that changed since they were noted, or since the last report."""

    def __init__(self) -> None:
        self._times: dict[Path, int] = {}
        self._watched: set[Path] = set()

    def note(self, files: Iterable[Path]) -> None:
        """Record the modification times of new files, in case they are watched later."""
        for file in files:
            if file not in self._times:
                self._times[file] = _time_of(file)

    def watch(self, files: Iterable[Path]) -> None:
        """Watch files for changes since they were noted."""
        files = list(files)
        self.note(files)
        self._watched.update(files)

    def changed(self) -> list[Path]:
        """List the files that changed, each change once."""
        changed = []
        for file in sorted(self._watched):
            now = _time_of(file)
            if now != self._times[file]:
                self._times[file] = now
                changed.append(file)
        return changed


def project_files() -> list[Path]:
    """List the source files of all imported modules, except the standard library and installed packages."""
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    files = {Path(name).resolve() for name in found if isinstance(name, str) and name.endswith(".py")}
    foreign = _foreign_places()
    return sorted(file for file in files if not any(file.is_relative_to(place) for place in foreign))


def python_files_below(folder: Path) -> list[Path]:
    """List all Python files below a folder, for a project that could not be imported."""
    return sorted(
        path
        for path in folder.rglob("*.py")
        if not any(part in SKIPPED or part.startswith(".") for part in path.relative_to(folder).parts)
    )


def report_sources(parent: ParentConnection) -> None:
    """Report imported source files to the parent process; a thread reports later imports."""
    told = _report(parent, frozenset())

    def report() -> None:
        nonlocal told
        while True:
            sleep(REPORT_SECONDS)
            told = _report(parent, told)

    threading.Thread(target=report, name="stagepost-sources", daemon=True).start()


def _report(parent: ParentConnection, told: frozenset[Path]) -> frozenset[Path]:
    files = frozenset(project_files())
    if files - told:
        parent.say(msgspec.json.encode(sorted(str(file) for file in files - told)).decode())
    return files | told


def sources_in(message: str) -> list[Path]:
    """Parse a message from `report_sources`; any other message yields no files."""
    try:
        return [Path(name) for name in msgspec.json.decode(message, type=list[str])]
    except msgspec.DecodeError:
        return []  # another message, such as the one that the worker is ready


def _foreign_places() -> set[Path]:
    paths = sysconfig.get_paths()
    places = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places |= {*site.getsitepackages(), site.getusersitepackages()}
    return {Path(place).resolve() for place in places}


def _time_of(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
