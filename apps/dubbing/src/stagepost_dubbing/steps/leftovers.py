"""Temporary directories, named after their process so that those of dead processes can be removed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from pathlib import Path

__all__ = ["directory_prefix", "remove_leftovers"]

NAME = "stagepost-dubbing"


def directory_prefix() -> str:
    """Return the prefix of this process's directory names."""
    return f"{NAME}-{_host()}-{os.getpid()}-"


def remove_leftovers(directory: str = "") -> list[Path]:
    """Remove directories of processes on this machine that no longer exist."""
    pattern = re.compile(rf"{NAME}-{re.escape(_host())}-(\d+)-.+")
    removed: list[Path] = []
    for path in Path(directory or tempfile.gettempdir()).iterdir():
        found = pattern.fullmatch(path.name)
        if found and not _is_alive(int(found[1])):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.]", "", socket.gethostname()) or "host"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
