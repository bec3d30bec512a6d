"""Installing server packages on Debian and Ubuntu, without their daemons starting."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

START_POLICY = Path("/usr/sbin/policy-rc.d")
DENY_START = "#!/bin/sh\n# Written by Stagepost's tests for the time of an installation.\nexit 101\n"

LOCK_TIMEOUT = 300
"""Seconds to wait while somebody else installs something."""


def install_command(packages: Sequence[str]) -> str:
    """The command for a person to type."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install --no-install-recommends -y {' '.join(packages)}"


def can_install() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def install(packages: Sequence[str]) -> str | None:
    """Install and return None, or return what apt-get said last."""
    with _no_daemon_starts():
        _apt_get("update")  # may fail for one of many sources; what counts is the installation
        done = _apt_get("install", "--no-install-recommends", "-y", *packages)
    return None if done.returncode == 0 else "\n".join(done.stderr.strip().splitlines()[-5:])


def _apt_get(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    command = ["apt-get", "-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT}", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def _no_daemon_starts() -> Iterator[None]:
    """A private instance is what we want; a policy that the machine already has stays."""
    if START_POLICY.exists():
        yield
        return
    START_POLICY.write_text(DENY_START)
    START_POLICY.chmod(0o755)
    try:
        yield
    finally:
        START_POLICY.unlink(missing_ok=True)
