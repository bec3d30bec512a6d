"""huey on SQLite, with fsync on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from huey import SqliteHuey

from benchmarks.kit.contender import NAP_SECONDS, PADDING, Contender, program
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


class HueyContender(Contender):
    """Its queue in a SQLite file, worked off by `huey_consumer`."""

    packages = ("huey",)

    def settings(self) -> Mapping[str, str]:
        """How it is run."""
        return {
            "worker": f"huey_consumer --worker-type process --workers PROCESSES, polling every {POLL_SECONDS} s; "
            f"for sleeping jobs --worker-type thread --workers 100",
            "store": "SQLite in WAL mode, fsync=True",
            "promise": "at most once: a job leaves the file before it runs; ended jobs are forgotten",
        }

    def prepare(self) -> None:
        """Nothing: it makes its tables itself."""

    def open(self) -> None:
        """Connect."""
        huey.pending_count()

    def close(self) -> None:
        """Disconnect."""
        huey.storage.close()

    def enqueue(self, number: int) -> None:
        """Ask for one job."""
        noop(number, PADDING)

    def enqueue_naps(self, numbers: Sequence[int]) -> None:
        """Ask one by one; there is no other way."""
        for number in numbers:
            nap(number, PADDING)

    def commands(self, *, processes: int, concurrency: int | None) -> list[list[str]]:
        """One consumer with so many worker processes, or threads for jobs that sleep."""
        kind = ["process", str(processes)] if concurrency is None else ["thread", str(concurrency)]
        polling = ["--delay", str(POLL_SECONDS), "--max-delay", str(POLL_SECONDS)]
        consumer = [program("huey_consumer"), "benchmarks.contenders.huey.huey", "--quiet", *polling]
        return [[*consumer, "--graceful-signal", "TERM", "--worker-type", kind[0], "--workers", kind[1]]]

    def left(self) -> int:
        """Jobs still in the file."""
        return int(huey.pending_count())


CONTENDER = HueyContender
