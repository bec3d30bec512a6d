"""huey on SQLite, with fsync on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from huey import SqliteHuey

from benchmarks.kit.contender import LONG_SECONDS, NAP_SECONDS, PADDING, RATE, Contender, is_worker, program
from benchmarks.kit.ledger import note
from benchmarks.kit.protocol import URL_VARIABLE

POLL_SECONDS = 0.1
FILE = os.environ.get(URL_VARIABLE, "sqlite:///:memory:").removeprefix("sqlite:///")

huey = SqliteHuey("bench", filename=FILE, fsync=True)


@huey.task(name="noop")
def noop(number: int, padding: str) -> None:
    """Do nothing."""
    note(number)


@huey.task(name="nap")
def nap(number: int, padding: str) -> None:
    """Sleep."""
    note(number)
    time.sleep(NAP_SECONDS)


@huey.task(name="long")
def long(number: int, padding: str) -> None:
    """Sleep for seconds."""
    note(number)
    time.sleep(LONG_SECONDS)


@huey.task(name="keyed", retries=100, retry_delay=1)
def keyed(number: int, padding: str, key: int) -> None:
    """Do nothing, one at a time per key; a job that finds its key taken is retried."""
    with huey.lock_task(f"key-{key}"):
        note(number)


@huey.task(name="rated")
def rated(number: int, padding: str) -> None:
    """Do nothing, a few times a second; a job that comes too early is retried."""
    with huey.rate_limit("rated", limit=RATE, per=1):
        note(number)


if not is_worker():

    @huey.task(name="unknown")
    def unknown(padding: str) -> None:
        """Never run."""


class HueyContender(Contender):
    """Its queue in a SQLite file, processed by `huey_consumer`."""

    packages = ("huey",)
    fate_of_unknown = "dropped"
    has_bulk = False

    def settings(self) -> Mapping[str, str]:
        """The configuration and promises, for the report."""
        return {
            "worker": f"huey_consumer --worker-type process --workers PROCESSES, polling every {POLL_SECONDS} s; "
            f"for sleeping jobs --worker-type thread --workers 100",
            "store": "SQLite in WAL mode, fsync=True",
            "promise": "at most once: a job leaves the file before it runs; ended jobs are forgotten",
        }

    def prepare(self) -> None:
        """Do nothing: it creates its tables itself."""

    def open(self) -> None:
        """Connect."""
        huey.pending_count()

    def close(self) -> None:
        """Disconnect."""
        huey.storage.close()

    def enqueue(self, number: int) -> None:
        """Enqueue one job."""
        noop(number, PADDING)

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Enqueue one by one; there is no other way."""
        for number in numbers:
            nap(number, PADDING)

    def enqueue_long(self, numbers: Sequence[int]) -> None:
        """Enqueue one by one."""
        for number in numbers:
            long(number, PADDING)

    def enqueue_keyed(self, numbers: Sequence[int], *, keys: int) -> None:
        """Enqueue one by one; a lock per key holds the limit."""
        for number in numbers:
            keyed(number, PADDING, number % keys)

    def enqueue_rated(self, numbers: Sequence[int]) -> None:
        """Enqueue one by one."""
        for number in numbers:
            rated(number, PADDING)

    def enqueue_unknown(self, jobs: int) -> None:
        """Enqueue one by one."""
        for _ in range(jobs):
            unknown(PADDING)

    def flow_commands(self, *, workers: int, slots: int) -> list[list[str]]:
        """Consumers with threads."""
        return self.commands(processes=1, concurrency=slots) * workers

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One consumer with so many worker processes, or threads for jobs that sleep."""
        kind = ["process", str(processes)] if concurrency is None else ["thread", str(concurrency)]
        polling = ["--delay", str(POLL_SECONDS), "--max-delay", str(POLL_SECONDS)]
        consumer = [program("huey_consumer"), "benchmarks.contenders.huey.huey", "--quiet", *polling]
        return [[*consumer, "--graceful-signal", "TERM", "--worker-type", kind[0], "--workers", kind[1]]]

    def left(self) -> int:
        """Jobs still in the file, those to be tried later included."""
        return int(huey.pending_count() + huey.scheduled_count())


CONTENDER = HueyContender
