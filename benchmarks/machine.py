"""Describes the machine of a run."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import psutil

__all__ = ["describe", "fsync_microseconds"]

SYNCS = 50
PAGE = b"x" * 8192
MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs"}


def describe(directory: Path) -> dict[str, str]:
    """Collect the facts that a reader needs to compare figures; `directory` holds the databases' data."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}, Python {platform.python_version()}",
        "disk": f"{file_system_of(directory)}, fdatasync of 8 kB takes {fsync_microseconds(directory):.0f} µs",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "commit": _commit(),
    }


def file_system_of(directory: Path) -> str:
    """The type of file system. One in memory makes durable commits free, and figures worthless."""
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    place = next(path for path in (directory.resolve(), *directory.resolve().parents) if path in mounts)
    kind = mounts[place]
    return f"{kind} (in memory: durability costs nothing here)" if kind in MEMORY_FILE_SYSTEMS else kind


def fsync_microseconds(directory: Path) -> float:
    """Measure what one durable write costs."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(SYNCS):
            began_at = time.perf_counter()
            os.pwrite(file.fileno(), PAGE, 0)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began_at)
    return median(times) * 1e6


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"
