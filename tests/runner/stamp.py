"""Records which commit passed: `.dev/tested`."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256

from tests.runner.piece import ROOT, STATE

STAMP = STATE / "tested"


@dataclass(frozen=True)
class Tree:
    """The state of the checkout."""

    commit: str
    changes: str
    """A digest of what is not committed; empty if everything is."""

    @classmethod
    def now(cls) -> Tree | None:
        """None outside a git checkout."""
        try:
            commit = _git("rev-parse", "HEAD").strip()
            status = _git("status", "--porcelain")
            changes = status + _git("diff", "HEAD") if status else ""
        except (OSError, subprocess.CalledProcessError):
            return None
        return cls(commit, sha256(changes.encode()).hexdigest() if changes else "")


def write_stamp(before: Tree | None, *, seconds: float, tests: int) -> str:
    """Record that the tree passed, unless it changed meanwhile; returns a sentence for the reader."""
    if before is None:
        return "This is not a git checkout: nothing was recorded."
    if Tree.now() != before:
        return "The files changed during the run: nothing was recorded."
    state = "with uncommitted changes" if before.changes else "clean"
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    STAMP.write_text(f"{before.commit} {state}, {moment}, {tests} tests in {seconds:.0f} s\n")
    return f"Recorded in {STAMP.relative_to(ROOT)}: commit {before.commit[:12]}, {state}."


def read_stamp() -> str:
    """The last successful run, for people."""
    return STAMP.read_text().strip() if STAMP.exists() else "No run of ./dev test has passed in this checkout."


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-c", "core.quotePath=false", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def changed_files(since: str) -> list[str]:
    """Files that differ from a commit, committed or not."""
    committed = _git("diff", "--name-only", since).splitlines()
    untracked = _git("ls-files", "--others", "--exclude-standard").splitlines()
    return sorted({*committed, *untracked})
