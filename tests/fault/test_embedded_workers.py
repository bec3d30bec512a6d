"""F22: PostgreSQL restarts under applications that run their own worker: the FastAPI and the script example."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagepost import App, JobState
from stagepost.model.lifecycle import FINAL, LIVE
from tests.fault.servers import PrivatePostgres, StopMode
from tests.services.postgres import PostgresServer
from tests.services.processes import free_port, wait_until
from tests.services.web import Site, served

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT = 180.0
MODES: list[StopMode] = ["fast", "immediate"]


@pytest.fixture
def observer(private_postgres: PrivatePostgres) -> Iterator[App]:
    """Sees the application's jobs as another process does, and runs none of them."""
    app = App(PostgresServer(private_postgres.url, origin="").fresh_database(), auto_migrate=True)
    yield app
    app.close()


@contextlib.contextmanager
def in_background(step: threading.Event, work: threading.Thread) -> Iterator[None]:
    """Run a thread until the end of the block; it has made a first step when the block starts."""
    work.start()
    assert step.wait(LIMIT)
    yield
    work.join(LIMIT)
    assert not work.is_alive()


def unfinished(observer: App) -> list[str]:
    """Jobs that have not ended."""
    return [job.id for job in observer.client.jobs(states=LIVE)]


def variables(observer: App) -> dict[str, str]:
    """What tells an example where its database is."""
    return {"DATABASE_URL": observer.settings.database_url}


def states_of(customer: Customer, observer: App) -> set[JobState]:
    """The states of all jobs that were accepted."""
    return {observer.client.job(job).state for job in customer.accepted}


class Customer(threading.Thread):
    """Orders all the time until it is asked to stop, and keeps the ids of the jobs that were accepted."""

    def __init__(self, site: Site) -> None:
        super().__init__(name="customer")
        self.site = site
        self.accepted: list[str] = []
        self.refused = 0
        self.has_ordered = threading.Event()
        self.may_stop = threading.Event()

    def run(self) -> None:
        while not self.may_stop.is_set():
            self.order()
            self.may_stop.wait(0.05)

    def order(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, answer = self.site.post("/orders?item=tea")
            if status == 202:
                self.accepted.append(answer["job"])
                self.has_ordered.set()
                return
        self.refused += 1


@pytest.mark.parametrize("mode", [MODES[1], pytest.param(MODES[0], marks=pytest.mark.prove)])
def test_the_fastapi_example_goes_on_after_a_restart_of_postgresql(
    private_postgres: PrivatePostgres, observer: App, mode: StopMode, tmp_path: Path
) -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--port", str(port), "fastapi_app:api"]
    with served(command, port=port, folder=tmp_path, variables=variables(observer)) as site:
        customer = Customer(site)
        with in_background(customer.has_ordered, customer):
            private_postgres.stop(mode)
            private_postgres.start()
            during = len(customer.accepted)
            wait_until(lambda: len(customer.accepted) > during, "an order after the restart", seconds=LIMIT)
            customer.may_stop.set()
        wait_until(lambda: states_of(customer, observer) <= FINAL, "the jobs to end", seconds=LIMIT)

    assert states_of(customer, observer) == {JobState.COMPLETED}, site.log.read_text(encoding="utf-8")


@pytest.mark.parametrize("mode", [MODES[0], pytest.param(MODES[1], marks=pytest.mark.prove)])
def test_the_script_example_goes_on_after_a_restart_of_postgresql(
    private_postgres: PrivatePostgres, observer: App, mode: StopMode, tmp_path: Path
) -> None:
    names = [f"{when}{number}" for when in ("before", "during", "after") for number in range(20)]
    with started_script(observer, tmp_path) as script:
        tell(script, names[:20])
        wait_until(lambda: bool(observer.client.jobs()), "the script to start", seconds=LIMIT)
        private_postgres.stop(mode)
        tell(script, names[20:40])
        private_postgres.start()
        tell(script, names[40:])
        printed, _ = script.communicate(timeout=LIMIT)

    assert printed.splitlines() == [f"Hello, {name}!" for name in names], (tmp_path / "script.log").read_text()
    assert script.returncode == 0
    assert not unfinished(observer)


@contextlib.contextmanager
def started_script(observer: App, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The script example, which reads names until its input is closed."""
    with (folder / "script.log").open("wb") as log:
        script = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "script.py"), "-"],
            cwd=folder,
            env={**os.environ, **variables(observer)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with script:
        try:
            yield script
        finally:
            script.kill()


def tell(script: subprocess.Popen[str], names: list[str]) -> None:
    """Write names to the input of the script."""
    assert script.stdin is not None
    script.stdin.writelines(f"{name}\n" for name in names)
    script.stdin.flush()
