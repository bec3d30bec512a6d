"""Runs the demo: enqueues jobs, starts two workers, kills one, replaces it and waits for the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stagepost.cli.demo.ledger import Audit, Ledger
from stagepost.cli.demo.plan import KILL_AT, Plan
from stagepost.cli.layout import Bar
from stagepost.cli.render import Output
from stagepost.client.app import App
from stagepost.clock import monotonic, sleep
from stagepost.config import Settings
from stagepost.database.migrate import migrate
from stagepost.database.store import Store
from stagepost.errors import StagepostError
from stagepost.model.options import JobOptions
from stagepost.store.queues import list_queues
from stagepost.store.workers import list_workers
from stagepost.worker.supervisor_connection import ChildConnection

__all__ = ["DemoFailed", "DemoWorker", "Show"]

WORKERS = 2
CHUNK = 2000
QUIET_SECONDS = 60.0
"""The demo fails if no job ends for this long."""


class DemoFailed(StagepostError):
    """The demo could not run to its end."""


@dataclass
class DemoWorker:
    """A real worker in a separate process, which ends with the demo even if the demo is killed."""

    number: int
    log: Path
    url: str
    queue: str
    lease: float
    lifeline: ChildConnection = field(default_factory=ChildConnection)

    def start(self) -> None:
        """Start the process, with its output going to a log file."""
        # -P: keep modules in the current folder from shadowing the demo's imports.
        command = [sys.executable, "-P", "-m", "stagepost", "worker", "--app", "stagepost.cli.demo.app:app"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.lifeline.command([*command, "--queues", self.queue]),
                env=_environment(self.url, self.lease),
                stdout=log,
                stderr=log,
                **self.lifeline.process_options,
            )
        self.lifeline.started()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process abruptly, as a power failure would."""
        self._process.kill()
        self._process.wait()
        self.lifeline.close()

    def stop(self) -> None:
        """Shut the process down cleanly."""
        if self.is_alive():
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.lifeline.close()


class Show:
    """One run of the demo on one database."""

    def __init__(self, url: str, plan: Plan, *, run: str, folder: Path, lease: float, output: Output) -> None:
        self.url, self.plan, self.run, self.folder, self.lease = url, plan, run, folder, lease
        self.seconds = 0.0
        self._output = output
        self._store = Store.at(url)
        self.ledger = Ledger(self._store, run)
        self._workers: list[DemoWorker] = []
        self._started = 0

    def play(self) -> Audit:
        """Run the demo to its end, then audit it."""
        started = monotonic()
        migrate(self._store)
        self.ledger.open(self.plan.items)
        try:
            self._enqueue()
            for _ in range(WORKERS):
                self._start_worker()
            with self._output.progress("Running", self.plan.items) as bar:
                self._watch(bar)
        finally:
            for worker in self._workers:
                worker.stop()
        self.seconds = monotonic() - started
        return self.ledger.audit()

    def close(self) -> None:
        """Close the database connections."""
        self._store.close()

    def _enqueue(self) -> None:
        with self._output.progress("Enqueueing", self.plan.items) as bar, _demo_tasks(self.url) as app:
            options = JobOptions(queue=self.run)
            for start in range(1, self.plan.items + 1, CHUNK):
                items = range(start, min(start + CHUNK, self.plan.items + 1))
                tasks = [(app.registry.get(self.plan.kind_of(item)), item) for item in items]
                app.client.enqueue_many([task.build(options, (item,), {}) for task, item in tasks])
                bar.move_to(items[-1])

    def _start_worker(self) -> DemoWorker:
        self._started += 1
        log = self.folder / f"worker-{self._started}.log"
        worker = DemoWorker(self._started, log, self.url, self.run, self.lease)
        worker.start()
        self._workers.append(worker)
        return worker

    def _watch(self, bar: Bar) -> None:
        """Follow the run to its end, and kill a worker along the way."""
        pause = 0.05 if self.plan.items < 5000 else 0.25
        rescue: Rescue | None = None
        last_ended, last_change = -1, monotonic()
        while (ended := self.plan.items - self._live()) < self.plan.items:
            bar.move_to(ended)
            if ended != last_ended:
                last_ended, last_change = ended, monotonic()
            if rescue is None and ended >= KILL_AT * self.plan.items:
                rescue = self._kill_one(bar)
            if rescue is not None:
                rescue.report(bar)
            self._check_workers(monotonic() - last_change)
            sleep(pause)
        if rescue is not None:
            rescue.report(bar, is_last=True)
        bar.move_to(self.plan.items)

    def _live(self) -> int:
        queues = {queue.name: queue for queue in self._store.run(list_queues())}
        return sum(queues[self.run].counts.values()) if self.run in queues else 0

    def _kill_one(self, bar: Bar) -> Rescue:
        """Kill the worker that holds the most jobs, and start a replacement."""
        held = self._held_jobs()
        victim = max(self._workers, key=lambda worker: held[worker.pid])
        victim.kill()
        left = self._held_jobs()[victim.pid]
        self._workers.remove(victim)
        bar.say(
            f"Killed worker {victim.number} (process {victim.pid}, SIGKILL) while it held {left} jobs. "
            f"Their leases end within {self.lease:g} s; then other workers run them."
        )
        replacement = self._start_worker()
        bar.say(f"Started worker {replacement.number} (process {replacement.pid}) in its place.")
        return Rescue(self.ledger.crashes)

    def _held_jobs(self) -> dict[int, int]:
        """Count the jobs that each worker has leased, by process id."""
        leased = self.ledger.leased()
        held = {worker.pid: leased.get(worker.id, 0) for worker in self._store.run(list_workers())}
        return dict.fromkeys((worker.pid for worker in self._workers), 0) | held

    def _check_workers(self, quiet_seconds: float) -> None:
        for worker in self._workers:
            if not worker.is_alive():
                raise DemoFailed(
                    f"worker {worker.number} died unexpectedly. The end of {worker.log}:\n{_tail(worker.log)}"
                )
        if quiet_seconds > QUIET_SECONDS:
            raise DemoFailed(f"no job has ended for {QUIET_SECONDS:g} s. The workers' logs are in {self.folder}.")


class Rescue:
    """Waits until the killed worker's jobs are rescued, and reports that once."""

    def __init__(self, crashes: Callable[[], int]) -> None:
        self._crashes = crashes
        self._since = monotonic()
        self._seen = 0
        self._is_told = False

    def report(self, bar: Bar, *, is_last: bool = False) -> None:
        """Report the number of rescued jobs when it stops growing, or at the end."""
        if self._is_told:
            return
        now = self._crashes()
        if now and (now == self._seen or is_last):
            self._is_told = True
            bar.say(f"{now} jobs of the dead worker were rescued {monotonic() - self._since:.1f} s after the kill.")
        self._seen = now


@contextmanager
def _demo_tasks(url: str) -> Iterator[App]:
    """Provide the demo's app, connected to the demo's database."""
    from stagepost.cli.demo.app import app  # noqa: PLC0415 - reads the settings, as apps do

    app.settings = Settings(database_url=url)
    try:
        yield app
    finally:
        app.close()


def _environment(url: str, lease: float) -> dict[str, str]:
    """Build a worker's environment, with the URL in it: every user of the machine can read arguments."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("STAGEPOST_")}
    return mine | {
        "STAGEPOST_DATABASE_URL": url,
        "STAGEPOST_LEASE_SECONDS": str(lease),
        "STAGEPOST_CONCURRENCY": "10",
        "STAGEPOST_PREFETCH": "100",
        "STAGEPOST_POLL_SHORTEST_SECONDS": "0.05",
        "STAGEPOST_SHUTDOWN_TIMEOUT_SECONDS": "5",
    }


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
