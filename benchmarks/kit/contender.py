"""The interface of a contender: the same few verbs for every job system."""

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
"""Set, to any value or to NO_PREFETCH, for figures that are measured with each product's own prefetch."""
NO_PREFETCH = "no-prefetch"


class Cannot(Exception):
    """The contender has no way to do this; the text says why, for the report."""


@dataclass(frozen=True)
class Unknown:
    """How many jobs a store has whose task no worker knows."""

    left: int
    """Jobs that wait for their first or next attempt."""
    ended: int
    """Jobs kept as failed."""


class Contender(ABC):
    """One job system. Jobs are numbered from 0; the address of its database or broker is in `url`."""

    packages: ClassVar[Sequence[str]]
    """Distributions whose versions belong in the report."""
    fate_of_unknown: ClassVar[str] = ""
    """What happens to a job whose task no worker knows, in a few words for the report."""
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
        """Enqueue one job that does nothing; returns when it is durably accepted."""

    def enqueue_each(self, numbers: Iterable[int]) -> None:
        """Enqueue jobs one after the other."""
        for number in numbers:
            self.enqueue(number)

    def enqueue_many(self, numbers: Sequence[int]) -> None:  # noqa: ARG002
        """Enqueue many jobs in the fastest documented way."""
        raise Cannot("it has no call that enqueues many jobs at once")

    @abstractmethod
    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Enqueue jobs that sleep for NAP_SECONDS."""

    def enqueue_long(self, numbers: Sequence[int]) -> None:  # noqa: ARG002
        """Enqueue jobs that sleep for LONG_SECONDS."""
        raise Cannot("its program has no long jobs")

    def enqueue_keyed(self, numbers: Sequence[int], *, keys: int) -> None:  # noqa: ARG002
        """Enqueue jobs that do nothing, at most one at a time per key; the key is `number % keys`."""
        raise Cannot(self.why_no_keys)

    def enqueue_rated(self, numbers: Sequence[int]) -> None:  # noqa: ARG002
        """Enqueue jobs of a task that may start RATE times per second."""
        raise Cannot(self.why_no_rate)

    def enqueue_unknown(self, jobs: int) -> None:  # noqa: ARG002
        """Enqueue jobs of a task that no worker knows."""
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
        """How many jobs have not ended, according to its store."""

    def ended(self) -> int | None:
        """How many ended jobs its store remembers; None if it forgets them."""
        return None

    def senders(self) -> list[list[str]]:
        """Commands that carry enqueued jobs from its store to a broker without running any."""
        return []

    def until_senders_work(self) -> None:
        """Return when the senders are ready."""
        raise Cannot("it has no senders")

    def unsent(self) -> int:
        """How many jobs the broker has not confirmed yet; 1 may mean any number."""
        return 0

    def fill_history(self, rows: int) -> None:  # noqa: ARG002
        """Copy ended jobs until there are `rows` of them."""
        raise Cannot("it keeps no ended jobs")


class AsyncContender(Contender):
    """A job system with an asynchronous client: the same verbs on one event loop."""

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
        """Enqueue one job."""

    def open(self) -> None:
        """Connect on the loop."""
        self.run(self.open_async())

    def close(self) -> None:
        """Disconnect and end the loop."""
        self.run(self.close_async())
        self._runner.close()

    def enqueue(self, number: int) -> None:
        """Enqueue one job and wait."""
        self.run(self.enqueue_async(number))

    def enqueue_each(self, numbers: Iterable[int]) -> None:
        """Enqueue jobs one after the other without leaving the loop."""
        self.run(self._enqueue_each(numbers))

    async def _enqueue_each(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            await self.enqueue_async(number)


def program(name: str) -> str:
    """The path of a program in this contender's own environment."""
    return str(Path(sys.executable).parent / name)


def is_worker() -> bool:
    """Whether this process runs jobs. The task that no worker may know is only registered elsewhere."""
    return LEDGER_VARIABLE in os.environ


def variable(name: str, default: str | None = None) -> str:
    """Read a variable that the benchmark set; workers' modules need it when they are imported."""
    value = os.environ.get(name, default)
    if value is None:
        raise SystemExit(f"{name} is not set: contenders are started by `./dev bench`")
    return value
