"""`stagepost bench`: measures how many jobs per second this machine and database can process."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Iterator
from dataclasses import dataclass

import click
import msgspec

from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Bar
from stagepost.cli.options import Command
from stagepost.cli.render import Output
from stagepost.client.app import App
from stagepost.clock import monotonic
from stagepost.config import Settings
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.store.activity import purge_queue
from stagepost.worker.worker import Worker

__all__ = ["Measured", "bench"]

CHUNK = 1000
CONCURRENCY = 50
PREFETCH = 500


@click.command(cls=Command, short_help="Measure how many jobs per second your database can process.")
@click.option("--jobs", "number", type=click.IntRange(min=1), default=20_000, show_default=True, help="Number of jobs.")
@click.option(
    "--concurrency", "-c", metavar="N", type=click.IntRange(min=1), default=CONCURRENCY, show_default=True,
    help="Number of jobs to run at once.",
)  # fmt: skip
@click.pass_obj
def bench(invocation: Invocation, *, number: int, concurrency: int) -> None:
    """Measure your database: enqueue jobs that do nothing, then run them all in one process.

    The jobs use a separate queue and are deleted afterwards. The benchmark slows down other workers that use the
    same database: do not run it on a busy production system.
    """
    _ = invocation.store  # report a missing or outdated database before starting
    measured = Benchmark(invocation.settings, number, concurrency, invocation.output).run()
    output = invocation.output

    def show() -> None:
        output.facts(
            {
                "jobs": f"{measured.jobs:,}",
                "enqueued": f"{measured.enqueued_per_second:,.0f} jobs/s in chunks of {CHUNK:,}",
                "drained": f"{measured.drained_per_second:,.0f} jobs/s by one process",
                "CPU": f"{measured.enqueue_cpu_us:,.0f} µs per job to enqueue, {measured.drain_cpu_us:,.0f} µs to run "
                f"(of this process, without the database server's)",
            }
        )

    output.result(measured, show)


class Measured(msgspec.Struct, frozen=True):
    """Results of the benchmark; CPU time is this process's, in microseconds per job."""

    jobs: int
    enqueued_per_second: float
    drained_per_second: float
    enqueue_cpu_us: float
    drain_cpu_us: float


@dataclass
class Stopwatch:
    """Measures elapsed time and this process's CPU time, in seconds."""

    seconds: float = 0.0
    cpu: float = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Measure the time that the body takes."""
        started, cpu = monotonic(), _cpu_seconds()
        try:
            yield
        finally:
            self.seconds, self.cpu = monotonic() - started, _cpu_seconds() - cpu


class Benchmark:
    """One run of the benchmark, in a separate queue."""

    def __init__(self, settings: Settings, number: int, concurrency: int, output: Output) -> None:
        self._number = number
        self._output = output
        self._queue = f"bench-{new_id()}"
        changed = msgspec.structs.replace(
            settings, concurrency=concurrency, prefetch=PREFETCH, poll_shortest_seconds=0.05
        )
        self._app = App(settings=changed)
        self._task = self._app.task(name="stagepost.bench.nothing", queue=self._queue, events="off")(nothing)

    def run(self) -> Measured:
        """Enqueue and run the jobs, then delete them even after an error."""
        jobs = [self._task.job() for _ in range(self._number)]
        enqueueing, draining = Stopwatch(), Stopwatch()
        try:
            with self._output.progress("Enqueueing", self._number) as bar, enqueueing.running():
                self._enqueue(jobs, bar)
            with self._output.progress("Draining", self._number) as bar, draining.running():
                asyncio.run(self._drain(bar))
        finally:
            self._clean_up(jobs)
            self._app.close()
        return Measured(
            jobs=self._number,
            enqueued_per_second=round(self._number / enqueueing.seconds, 1),
            drained_per_second=round(self._number / draining.seconds, 1),
            enqueue_cpu_us=round(1_000_000 * enqueueing.cpu / self._number, 1),
            drain_cpu_us=round(1_000_000 * draining.cpu / self._number, 1),
        )

    def _enqueue(self, jobs: list[NewJob], bar: Bar) -> None:
        for start in range(0, len(jobs), CHUNK):
            self._app.client.enqueue_many(jobs[start : start + CHUNK])
            bar.move_to(min(start + CHUNK, len(jobs)))

    async def _drain(self, bar: Bar) -> None:
        worker = Worker(self._app, queues=[self._queue])
        running = asyncio.create_task(worker.run(until_idle=True))
        while not running.done():
            await asyncio.wait({running}, timeout=0.2)
            bar.move_to(min(self._number, worker.parts.finisher.settled))
        await running

    def _clean_up(self, jobs: list[NewJob]) -> None:
        ids = sorted(job.id for job in jobs)
        with self._output.progress("Cleaning up", len(ids)) as bar:
            for start in range(0, len(ids), CHUNK):
                chunk = ids[start : start + CHUNK]
                self._app.store.run(purge_queue(self._queue, first_id=chunk[0], last_id=chunk[-1]))
                bar.move_to(start + len(chunk))


async def nothing() -> None:
    """Do nothing: every job of the benchmark runs this."""


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
