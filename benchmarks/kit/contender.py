"""What a contender can do: the same few verbs for every job system."""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from benchmarks.kit.ledger import LEDGER_VARIABLE

__all__ = [
    "FLOW_VARIABLE", "LONG_SECONDS", "LONG_VARIABLE", "NAP_SECONDS", "NO_PREFETCH", "PADDING", "RATE", "AsyncContender",
    "Cannot", "Contender", "Unknown", "is_worker", "program", "variable",
]  # fmt: skip

T = TypeVar("T")

PADDING = "x" * 166
"""Makes the arguments of a job 200 bytes of JSON: {"number": 1234567, "padding": "xxx…"}."""
NAP_SECONDS = 0.1
RATE = 2
"""How many jobs of the rate-limited task may start per second."""
LONG_VARIABLE = "BENCH_LONG_SECONDS"
LONG_SECONDS = float(os.environ.get(LONG_VARIABLE, "3"))
"""How long a long job sleeps; workers read it from their environment."""
FLOW_VARIABLE = "BENCH_FLOW"
"""Set for the figures that are measured with each product's own prefetch: to anything, or to NO_PREFETCH."""
NO_PREFETCH = "no-prefetch"


class Cannot(Exception):
    """The contender has no way to do this; the text says why, for the report."""


@dataclass(frozen=True)
class Unknown:
    """What a store has of the jobs whose task no worker knows."""

    left: int
    """Those that wait, to be tried for the first time or again."""
    ended: int
    """Those that it keeps as failed."""


class Contender(ABC):
    """One job system. Jobs are numbered from 0; the address of its database or broker is in `url`."""

    packages: ClassVar[Sequence[str]]
    """Distributions whose versions belong in the report."""
    fate_of_unknown: ClassVar[str] = ""
    """What becomes of a job whose task no worker knows, in a few words for the report."""
    has_bulk: ClassVar[bool] = True
    """Whether a hundred thousand jobs can be enqueued within seconds."""
    why_no_keys: ClassVar[str] = "it has no limit on how many jobs of one key run at once"
    why_no_rate: ClassVar[str] = "it has no rate limit per task"

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Say, for the report, how it is configured and what it promises."""

    def versions(self) -> dict[str, str]:
        """The versions that run."""
        return {name: version(name) for name in self.packages}

    @abstractmethod
    def prepare(self) -> None:
        """Make its tables or queues in an empty database."""

    @abstractmethod
    def open(self) -> None:
        """Connect for the methods below."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""

    @abstractmethod
    def enqueue(self, number: int) -> None:
        """Ask for one job that does nothing; returns when it is accepted for good."""

    def enqueue_each(self, numbers: Iterable[int]) -> None:
        """Ask for jobs one after the other."""
        for number in numbers:
            self.enqueue(number)

    def enqueue_many(self, numbers: Sequence[int]) -> None:  # noqa: ARG002
        """Ask for many jobs in the quickest documented way."""
        raise Cannot("it has no call that enqueues many jobs at once")

    @abstractmethod
    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Ask for jobs that sleep for NAP_SECONDS."""

    def enqueue_long(self, numbers: Sequence[int]) -> None:  # noqa: ARG002
        """Ask for jobs that sleep for LONG_SECONDS."""
        raise Cannot("its program has no long jobs")

    def enqueue_keyed(self, numbers: Sequence[int], *, keys: int) -> None:  # noqa: ARG002
        """Ask for jobs that do nothing, of which at most one per key may run: `number % keys`."""
        raise Cannot(self.why_no_keys)

    def enqueue_rated(self, numbers: Sequence[int]) -> None:  # noqa: ARG002
        """Ask for jobs of a task of which RATE may start per second."""
        raise Cannot(self.why_no_rate)

    def enqueue_unknown(self, jobs: int) -> None:  # noqa: ARG002
        """Ask for jobs of a task that no worker knows."""
        raise Cannot("its program has no jobs of an unknown task")

    def unknown(self) -> Unknown | None:
        """Count the jobs whose task no worker knows; None if its store cannot tell them from others."""
        return None

    @abstractmethod
    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """The workers to start; `concurrency` is for jobs that sleep, None for jobs that take no time."""

    def flow_commands(self, *, workers: int, slots: int) -> list[list[str]]:
        """Workers with so many slots each, and the product's own prefetch."""
        return self.commands(processes=workers, concurrency=slots)

    def environment(self) -> Mapping[str, str]:
        """What the workers need in their environment besides the address and the ledger."""
        return {}

    @abstractmethod
    def left(self) -> int:
        """How many jobs have not ended, by its store's own account."""

    def ended(self) -> int | None:
        """How many ended jobs its store remembers; None if it forgets them."""
        return None

    def senders(self) -> list[list[str]]:
        """What carries jobs from its store to a broker while they are asked for, and runs none of them."""
        return []

    def until_senders_work(self) -> None:
        """Return when the senders are ready."""
        raise Cannot("it has no senders")

    def unsent(self) -> int:
        """Whether jobs are left that the broker has not confirmed: how many, or 1 for some."""
        return 0

    def fill_history(self, rows: int) -> None:  # noqa: ARG002
        """Multiply the ended jobs until there are so many."""
        raise Cannot("it keeps no ended jobs")


class AsyncContender(Contender):
    """A job system whose client is asynchronous: the same verbs on one event loop."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._runner = asyncio.Runner()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run on this contender's own loop."""
        return self._runner.run(call)

    @abstractmethod
    async def open_async(self) -> None:
        """Connect."""

    @abstractmethod
    async def close_async(self) -> None:
        """Disconnect."""

    @abstractmethod
    async def enqueue_async(self, number: int) -> None:
        """Ask for one job."""

    def open(self) -> None:
        """Connect on the loop."""
        self.run(self.open_async())

    def close(self) -> None:
        """Disconnect and end the loop."""
        self.run(self.close_async())
        self._runner.close()

    def enqueue(self, number: int) -> None:
        """Ask for one job and wait."""
        self.run(self.enqueue_async(number))

    def enqueue_each(self, numbers: Iterable[int]) -> None:
        """Ask for jobs one after the other without leaving the loop."""
        self.run(self._enqueue_each(numbers))

    async def _enqueue_each(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            await self.enqueue_async(number)


def program(name: str) -> str:
    """The path of a program in this contender's own environment."""
    return str(Path(sys.executable).parent / name)


def is_worker() -> bool:
    """Whether this process runs jobs: tasks that no worker may know are only made where it is not."""
    return LEDGER_VARIABLE in os.environ


def variable(name: str, default: str | None = None) -> str:
    """Read what the benchmark put into the environment; modules of workers need it when they are imported."""
    value = os.environ.get(name, default)
    if value is None:
        raise SystemExit(f"{name} is not set: contenders are started by `./dev bench`")
    return value
