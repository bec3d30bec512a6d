"""A contender with the database of one visit, the sizes of a run, and the commands that are sent to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.catalogue import Entry
from benchmarks.contenders import CONTENDERS_VARIABLE
from benchmarks.environments import ROOT
from benchmarks.kit.contender import LONG_VARIABLE
from benchmarks.kit.protocol import (
    BROKER_URL_VARIABLE,
    BROKER_VARIABLE,
    SERVER_VARIABLE,
    URL_VARIABLE,
    VARIANT_VARIABLE,
)
from benchmarks.servers import Address

__all__ = ["QUICK", "CallFailed", "Cannot", "Contestant", "Facts", "Figure", "Figures", "Sizes"]

Facts = dict[str, Any]
Figures = Iterator[tuple[str, Facts]]


@dataclass(frozen=True)
class Sizes:
    """Numbers of jobs, and time limits."""

    singles: int = 5_000
    jobs: int = 50_000
    samples: int = 100
    naps: int = 1_000
    nap_concurrency: int = 100
    idle_seconds: int = 30
    small_backlog: int = 10_000
    large_backlog: int = 1_000_000
    history: int = 5_000_000
    held_jobs: int = 500_000
    held_seconds: int = 600
    slots: int = 10
    """How many jobs a worker runs at once in `mixed`, `rated` and `unknown`."""
    long_jobs: int = 10
    long_seconds: int = 3
    quick_jobs: int = 400
    keyed_jobs: int = 10_000
    keys: int = 1_000
    rated_jobs: int = 300
    rated_seconds: int = 5
    unknown_jobs: int = 100_000
    unknown_singly: int = 5_000
    """How many jobs of an unknown task, if they can only be enqueued one by one."""
    plain_jobs: int = 200
    wait_seconds: int = 15
    """How long the last job of `mixed`, `rated` or `unknown` may wait before its wait is reported as longer."""
    command_seconds: int = 3_600
    """How long a command may take before that figure of the contender is abandoned."""

    @property
    def backlog_jobs(self) -> int:
        """How many jobs are timed behind a backlog; not all of the small one, because its end costs extra."""
        return self.small_backlog * 4 // 5


QUICK = Sizes(
    singles=200,
    jobs=1_000,
    samples=10,
    naps=200,
    idle_seconds=3,
    small_backlog=2_500,
    large_backlog=10_000,
    history=10_000,
    held_jobs=3_000,
    held_seconds=60,
    long_seconds=1,
    quick_jobs=40,
    keyed_jobs=500,
    keys=50,
    rated_jobs=30,
    rated_seconds=2,
    unknown_jobs=2_000,
    unknown_singly=200,
    plain_jobs=20,
    wait_seconds=5,
    command_seconds=300,
)


class CallFailed(RuntimeError):
    """A contender's command ended in an error."""


class Cannot(RuntimeError):
    """The contender has no way to do this."""


@dataclass(frozen=True)
class Contestant:
    """A contender, the interpreter of its environment, and the database of one visit."""

    entry: Entry
    python: Path
    address: Address
    sizes: Sizes

    def call(self, command: str, *arguments: object, variables: Mapping[str, str] | None = None) -> Facts:
        """Run one command of the protocol, with these variables in its environment and its workers'."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STAGEPOST_")}
        environment |= {
            # Use this checkout's benchmarks even for another checkout of Stagepost.
            "PYTHONPATH": os.pathsep.join((str(ROOT), str((self.entry.home or ROOT) / "src"))),
            URL_VARIABLE: self.address.url,
            SERVER_VARIABLE: " ".join(map(str, self.address.server_pids)),
            BROKER_URL_VARIABLE: self.address.broker_url,
            BROKER_VARIABLE: " ".join(map(str, self.address.broker_pids)),
            VARIANT_VARIABLE: self.entry.variant,
            LONG_VARIABLE: str(self.sizes.long_seconds),
            CONTENDERS_VARIABLE: self._contenders(),
            **(variables or {}),
        }
        words = [str(self.python), "-m", "benchmarks.kit", self.entry.program, command, *map(str, arguments)]
        process = subprocess.Popen(
            words,
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            output, complaints = process.communicate(timeout=self.sizes.command_seconds)
        except subprocess.TimeoutExpired:
            # SIGINT: its own `finally` blocks then stop the workers it started.
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise CallFailed(f"{command} took longer than {self.sizes.command_seconds} s") from None
        except KeyboardInterrupt:
            process.communicate()  # a terminal interrupts everyone; let it stop its workers
            raise
        return _answer(command, output, complaints)

    def _contenders(self) -> str:
        entry = self.entry
        return str(entry.home / "benchmarks" / "contenders") if entry.home and entry.is_own_program else ""

    def fill(self, jobs: int) -> Facts | None:
        """Enqueue jobs in bulk and return the cost; without a bulk call, enqueue them one by one and return None."""
        try:
            return self.call("enqueue-bulk", jobs)
        except Cannot:
            self.call("enqueue-one", jobs)
            return None


@dataclass(frozen=True)
class Figure:
    """What a visit measures: the keys of its samples, and how."""

    keys: tuple[str, ...]
    measure: Callable[[Contestant], Figures]


def _answer(command: str, output: str, complaints: str) -> Facts:
    lines = output.strip().splitlines()
    try:
        facts: Facts = json.loads(lines[-1])
    except (IndexError, ValueError):
        tail = "\n".join(complaints.strip().splitlines()[-5:])
        raise CallFailed(f"{command} gave no answer: {tail}") from None
    if "cannot" in facts:
        raise Cannot(facts["cannot"])
    if "error" in facts:
        raise CallFailed(f"{command}: {facts['error']}")
    return facts
