"""F22 to F25, F32: the database itself dies, restarts or hangs while workers run."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stagepost.database.store import CALL_SECONDS
from stagepost.model.lifecycle import FINAL
from tests.depth import sized
from tests.fault.arena import LEASE, Arena
from tests.fault.backends import opened
from tests.fault.conftest import WITHOUT_TLS
from tests.fault.leaks import Footprint, no_bigger_than, pools_empty
from tests.fault.nursery import Nursery
from tests.fault.samples import sample_of
from tests.fault.servers import PrivateMariaDB, PrivatePostgres
from tests.services.fixtures import give_up_on
from tests.services.locate import MARIADB, POSTGRES, Service
from tests.services.mariadb import MariadbServer
from tests.services.postgres import PostgresServer
from tests.services.processes import wait_until

LASTING = [pytest.mark.nightly, pytest.mark.timeout(900)]
CRASHES = sized(1, 3, 20)
MIX = ("transfer", "transfer_flaky", "note")
RECOVERY_SECONDS = LEASE + 15 + 5
GRACE_US = 15_000_000

Victim = PrivatePostgres | PrivateMariaDB
VICTIMS: dict[str, tuple[type[Victim], Service[Any]]] = {
    "postgres": (PrivatePostgres, POSTGRES),
    "mariadb": (PrivateMariaDB, MARIADB),
}


@pytest.fixture(scope="module", params=VICTIMS)
def server(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[Victim]:
    """A server to hurt, which syncs what it commits: here it is the one that dies."""
    kind, service = VICTIMS[request.param]
    if missing := kind.missing_program():
        give_up_on(service, f"a private instance needs {missing}", pytestconfig)
    with kind() as server:
        yield server


@pytest.fixture
def arena(server: Victim, nursery: Nursery, tmp_path: Path) -> Iterator[Arena]:
    """On a separate database, which is deleted with the server."""
    if isinstance(server, PrivatePostgres):
        name, url = "postgres", PostgresServer(server.url, origin="").fresh_database()
    else:
        name, url = "mariadb", MariadbServer(server.url, origin="").fresh_database() + WITHOUT_TLS
    with opened(name, url) as backend:
        try:
            yield Arena(backend, nursery, tmp_path)
        finally:
            nursery.kill_all()


def restart(_: Arena, server: Victim) -> None:
    """End all sessions at once, without a checkpoint; start with recovery."""
    if isinstance(server, PrivatePostgres):
        server.restart_immediate()
    else:
        server.restart_killed()


def kill_a_backend(arena: Arena, server: Victim) -> None:
    """Kill the process of one session, upon which PostgreSQL ends all of them and recovers."""
    assert isinstance(server, PrivatePostgres)

    def has_killed_one() -> bool:
        with contextlib.suppress(LookupError, psutil.NoSuchProcess):  # a producer's session may have ended meanwhile
            server.kill_backend(arena.random.choice(arena.backend.open_sessions())[0])
            return True
        return False

    arena.wait(has_killed_one, "a session to kill")


def restart_twice(arena: Arena, server: Victim) -> None:
    """Again, as soon as workers are back and clear up after the first time."""
    restart(arena, server)
    arena.backend.reconnect()
    arena.wait(lambda: bool(arena.backend.open_sessions()), "a worker to come back")
    restart(arena, server)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("server", "crash"),
    [
        pytest.param("postgres", restart, id="F22 postgres restarts"),
        pytest.param("postgres", kill_a_backend, id="F23 postgres loses a backend", marks=pytest.mark.prove),
        pytest.param("postgres", restart_twice, id="F24 postgres restarts twice", marks=pytest.mark.prove),
        pytest.param("mariadb", restart_twice, id="F24 mariadb restarts twice", marks=pytest.mark.prove),
        pytest.param("mariadb", restart, id="F32 mariadb is killed"),
    ],
    indirect=["server"],
)
def test_a_database_crash_loses_nothing_and_duplicates_nothing(
    arena: Arena, server: Victim, crash: Callable[[Arena, Victim], None]
) -> None:
    """F22, F23, F24, F32: what it confirmed is there afterwards, and work goes on by itself."""
    worker = arena.start_worker(concurrency=4)
    arena.wait_for_end(arena.enqueue("transfer", 30) + arena.enqueue("note", 30))
    before = Footprint.of(worker.pid)

    with producing(arena):
        for _ in range(CRASHES):
            arena.wait(lambda: has_one(arena, "running"), "work")
            sample_what_is_kept(arena)
            crash(arena, server)
            arena.backend.reconnect()
            arena.observed.add(sample_of(arena.backend))
            wait_for_progress(arena)
    arena.wait_for_end(seconds=120)

    arena.verify(grace_us=GRACE_US)
    pools_empty(worker)
    no_bigger_than(before, worker.pid)


@contextlib.contextmanager
def producing(arena: Arena) -> Iterator[None]:
    """Ask for more and more jobs in the body, whatever becomes of the server meanwhile."""
    stopped = threading.Event()
    errors: list[BaseException] = []

    def produce() -> None:
        try:
            while not stopped.wait(0.05):  # the pace: a server that is down is asked no less often
                for task in MIX:
                    arena.enqueue(task, 2)
        except Exception as error:  # noqa: BLE001 - raised in the test's thread
            errors.append(error)

    thread = threading.Thread(target=produce, name="producer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(60)
    assert errors == []


def sample_what_is_kept(arena: Arena) -> None:
    """MariaDB shows a commit to others before it is on disk, and before the one who commits hears of it."""
    arena.observed.add(sample_of(arena.backend))
    if arena.backend.name == "mariadb":
        arena.backend.rows("flush engine logs")


def has_one(arena: Arena, state: str) -> bool:
    return any(job.state == state for job in arena.jobs().values())


def wait_for_progress(arena: Arena) -> None:
    """Wait until jobs that had not ended by now have."""
    before = ended(arena)
    arena.wait(lambda: ended(arena) > before, "work to go on", seconds=RECOVERY_SECONDS)


def ended(arena: Arena) -> int:
    return sum(job.state in FINAL for job in arena.jobs().values())


@pytest.mark.parametrize(
    "seconds", [pytest.param(0, marks=pytest.mark.prove), pytest.param(60, marks=LASTING)], ids="hangs for {}s".format
)
def test_a_database_that_hangs_stops_the_handlers_and_their_results_do_not_count(
    arena: Arena, server: Victim, seconds: int
) -> None:
    """F25: it answers nobody and refuses nobody, until the handlers are stopped or for longer."""
    worker = arena.start_worker()
    jobs = arena.enqueue("transfer_until_stopped", 4, seconds=600, seconds_again=0)
    arena.wait(lambda: {note.job_id for note in arena.notes("start")} == set(jobs), "all to start")
    until = time.monotonic() + seconds

    server.pause()
    try:  # not by the arena, which would ask the database
        wait_until(lambda: are_stopped(worker.logged(), jobs), "all to be stopped", seconds=60)
        wait_until(lambda: time.monotonic() > until, "the time it hangs", seconds=seconds + 1)
    finally:
        server.resume()
    arena.wait_for_end(jobs, seconds=CALL_SECONDS + RECOVERY_SECONDS)

    evidence = arena.verify(grace_us=seconds * 1_000_000 + GRACE_US)
    assert {job.state for job in evidence.jobs.values()} == {"completed"}
    assert min(attempt for _, attempt in evidence.ledger) > 1
    assert worker.status is None
    pools_empty(worker)


def are_stopped(logged: str, jobs: list[str]) -> bool:
    return all(f"job {job_id}: stopping attempt 1" in logged for job_id in jobs)
