"""Names of a run's databases, which show whether the run that created them is still alive."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket

import psutil

PREFIX = "stagepost_test"
_PATTERN = re.compile(rf"{PREFIX}_([0-9a-f]{{8}})_([0-9]+)_[0-9a-f]{{8}}")


def fresh_name() -> str:
    """A name no other run uses: host, process and chance."""
    return f"{PREFIX}_{_host()}_{os.getpid()}_{secrets.token_hex(4)}"


def is_stale(name: str) -> bool:
    """Whether a run on this host made it and that process is gone; other hosts' are never touched."""
    match = _PATTERN.fullmatch(name)
    return match is not None and match[1] == _host() and not psutil.pid_exists(int(match[2]))


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
